//! A Redis or Valkey for one test.
#![allow(dead_code)]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use interlock_node::log::{Entry, Event, LogPort};
use interlock_node::redis::{Log, Settings};
use interlock_node::trouble::Trouble;

pub struct Server {
    program: &'static str,
    child: Option<Child>,
    pub folder: PathBuf,
    more: Vec<String>,
}

pub const STREAM: &[u8] = b"il:log:{test}";
pub const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];
static LAST: AtomicU32 = AtomicU32::new(0);

impl Server {
    pub fn start(program: &'static str, more: &[&str]) -> Server {
        let number = LAST.fetch_add(1, Relaxed);
        let name = format!("interlock-node-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let more = more.iter().map(|one| (*one).to_owned()).collect();
        let mut server = Server { program, child: None, folder, more };
        server.run();
        server
    }

    pub fn path(&self) -> PathBuf {
        self.folder.join("socket")
    }

    pub fn address(&self) -> String {
        format!("unix:{}", self.path().display())
    }

    /// Starts the server on the data in its folder.
    pub fn run(&mut self) {
        let _ = std::fs::remove_file(self.path());
        let mut command = Command::new(self.program);
        command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(self.path());
        command.arg("--dir").arg(&self.folder).args(&self.more);
        command.stdout(Stdio::null()).stdin(Stdio::null());
        let child = command.spawn();
        let child = child.unwrap_or_else(|error| panic!("{}: {error}: install it", self.program));
        self.child = Some(child);
        let until = Instant::now() + Duration::from_secs(30);
        while UnixStream::connect(self.path()).is_err() {
            assert!(Instant::now() < until, "{} has not started", self.program);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub fn pid(&self) -> i32 {
        self.child.as_ref().unwrap().id() as i32
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: the process is our child and has not been waited for.
        unsafe { libc::kill(self.pid(), signal) };
    }

    /// Returns the raw reply to a command; its words must not contain blanks.
    pub fn say(&self, line: &str) -> String {
        say(&self.path(), line)
    }

    /// Adds an entry as the log's own: one field with these bytes.
    pub fn add(&self, id: &str, bytes: &str) -> String {
        self.say(&format!("XADD {} {id} e {bytes}", String::from_utf8_lossy(STREAM)))
    }

    /// Settings that accept any first entry.
    pub fn settings(&self) -> Settings {
        Settings { is_first: |_| true, ..Settings::new(&self.address(), STREAM) }
    }

    /// Settings for a node.
    pub fn log(&self) -> Box<dyn LogPort> {
        Box::new(Log::new(Settings::new(&self.address(), STREAM)))
    }
}

pub fn say(path: &Path, line: &str) -> String {
    let mut socket = UnixStream::connect(path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket.write_all(format!("{line}\r\n").as_bytes()).unwrap();
    let (mut found, mut buffer) = (Vec::new(), [0; 65536]);
    loop {
        let count = socket.read(&mut buffer).unwrap();
        found.extend_from_slice(&buffer[..count]);
        if count < buffer.len() && found.ends_with(b"\r\n") {
            return String::from_utf8_lossy(&found).into_owned();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns the next wanted event; others are skipped.
pub fn until<T>(log: &mut Log, mut wanted: impl FnMut(Event) -> Option<T>) -> T {
    let mut seen = Vec::new();
    let end = Instant::now() + Duration::from_secs(30);
    while let Some(event) = log.wait(end) {
        if seen.len() < 20 {
            seen.push(format!("{event:.300?}"));
        }
        if let Some(found) = wanted(event) {
            return found;
        }
    }
    panic!("it did not come; before: {seen:#?}");
}

pub fn opened(settings: Settings) -> Log {
    let mut log = Log::new(settings);
    until(&mut log, |event| (event == Event::Open).then_some(()));
    // Only now, or the entries read before would be skipped.
    log.read_from(None);
    log
}

/// Returns the next `count` entries.
pub fn entries(log: &mut Log, count: usize) -> Vec<Entry> {
    let mut found = Vec::new();
    let end = Instant::now() + Duration::from_secs(30);
    while found.len() < count {
        assert!(Instant::now() < end, "{} of {count} entries came", found.len());
        until(log, |event| match event {
            Event::Read { entries, .. } => {
                found.extend(entries);
                Some(())
            }
            Event::Trouble(trouble) if trouble.kind.is_of_history() => panic!("{trouble}"),
            _ => None,
        });
    }
    found
}

pub fn trouble(log: &mut Log) -> Trouble {
    until(log, |event| match event {
        Event::Trouble(trouble)
        | Event::Refused { trouble, .. }
        | Event::Unknown { trouble, .. } => Some(trouble),
        _ => None,
    })
}
