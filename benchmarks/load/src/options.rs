//! The options of the command line; `main` lists them.

use std::error::Error;
use std::str::FromStr;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Options {
    pub port: u16,
    pub pid: u32,
    pub core: Option<usize>,
    pub publishers: usize,
    pub subscribers: usize,
    pub pipeline: usize,
    pub window: usize,
    pub patterns: usize,
    pub ends: bool,
    pub seconds: Duration,
    pub warm: Duration,
    pub rate: u64,
    pub spin: bool,
    pub connections: usize,
    pub owed: usize,
    pub clients: usize,
    pub batch: usize,
    pub keys: u64,
    pub each: usize,
    pub payload: usize,
    /// µs.
    pub wait: u64,
    pub numbered: bool,
    pub backlog: u64,
    /// 0: as the server has it; 1: on the disk once a second; 2: on the disk before the answer.
    pub durable: u8,
}

impl Options {
    pub fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut options = Options {
            port: 0,
            pid: 0,
            core: None,
            publishers: 1,
            subscribers: 0,
            pipeline: 1,
            window: 0,
            patterns: 0,
            ends: false,
            seconds: Duration::from_secs(1),
            warm: Duration::from_millis(100),
            rate: 10_000,
            spin: true,
            connections: 10_000,
            owed: 8_000_000,
            clients: 8,
            batch: 1,
            keys: 100_000,
            each: 2,
            payload: 64,
            wait: 0,
            numbered: true,
            backlog: 0,
            durable: 0,
        };
        for argument in arguments {
            let (name, value) = argument.split_once('=').ok_or("an option is NAME=VALUE")?;
            match name {
                "port" => options.port = number(name, value)?,
                "pid" => options.pid = number(name, value)?,
                "core" => options.core = Some(number(name, value)?),
                "publishers" => options.publishers = number(name, value)?,
                "subscribers" => options.subscribers = number(name, value)?,
                "pipeline" => options.pipeline = number(name, value)?,
                "window" => options.window = number(name, value)?,
                "patterns" => options.patterns = number(name, value)?,
                "ends" => options.ends = number::<u8>(name, value)? != 0,
                "seconds" => options.seconds = Duration::try_from_secs_f64(number(name, value)?)?,
                "warm" => options.warm = Duration::try_from_secs_f64(number(name, value)?)?,
                "rate" => options.rate = number(name, value)?,
                "spin" => options.spin = number::<u8>(name, value)? != 0,
                "connections" => options.connections = number(name, value)?,
                "owed" => options.owed = number(name, value)?,
                "clients" => options.clients = number(name, value)?,
                "batch" => options.batch = number(name, value)?,
                "keys" => options.keys = number(name, value)?,
                "each" => options.each = number(name, value)?,
                "payload" => options.payload = number(name, value)?,
                "wait" => options.wait = number(name, value)?,
                "numbered" => options.numbered = number::<u8>(name, value)? != 0,
                "backlog" => options.backlog = number(name, value)?,
                "durable" => options.durable = number(name, value)?,
                _ => return Err(format!("no option {name}").into()),
            }
        }
        if options.port == 0 || options.pid == 0 {
            return Err("port and pid are needed".into());
        }
        if options.publishers == 0 || options.pipeline == 0 || options.rate == 0 {
            return Err("publishers, pipeline and rate are at least 1".into());
        }
        if options.window > 0 && options.window < options.pipeline {
            return Err("a window has room for a pipeline, or nothing would ever be sent".into());
        }
        if options.window > 0 && options.subscribers == 0 {
            return Err("a window needs a subscriber".into());
        }
        if options.patterns > 100_000 {
            return Err("at most 100000 patterns".into());
        }
        Ok(options)
    }
}

fn number<T: FromStr>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{name} cannot be {value:?}"))
}
