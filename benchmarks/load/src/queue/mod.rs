//! Queues: put, lease and settle, with the same loads on Interlock's wire, on streams and on lists.

mod book;
mod closed;
mod frame;
mod handled;
mod interlock;
mod levels;
mod lists;
mod pool;
mod side;
mod streams;

use std::error::Error;

use crate::options::Options;
use book::Shape;
use interlock::Interlock;
use lists::Lists;
use pool::Pool;
use side::Side;
use streams::Streams;

/// `task` is one of `queue`, `handled` and `levels`, `side` one of `interlock`, `streams` and
/// `lists`; `None` if they are not.
pub fn run(task: &str, side: &str, options: &Options) -> Option<Result<String, Box<dyn Error>>> {
    let shape = match check(options) {
        Ok(shape) => shape,
        Err(error) => return Some(Err(error)),
    };
    // The one that puts at a rate does not consume.
    let clients = options.clients + usize::from(task == "handled");
    match side {
        "interlock" => load(task, options, shape, clients, Interlock::new(shape, clients, options)),
        "streams" => load(task, options, shape, clients, Streams::new(clients)),
        "lists" => load(task, options, shape, clients, Lists::new(clients)),
        _ => None,
    }
}

fn load(
    task: &str,
    options: &Options,
    shape: Shape,
    clients: usize,
    side: impl Side,
) -> Option<Result<String, Box<dyn Error>>> {
    let task = match task {
        "queue" => closed::run,
        "handled" => handled::run,
        "levels" => levels::run,
        _ => return None,
    };
    let pool = Pool::new(options, shape, clients, side);
    Some(pool.map_err(Into::into).and_then(|pool| task(options, pool)))
}

fn check(options: &Options) -> Result<Shape, Box<dyn Error>> {
    let shape = Shape { keys: options.keys, each: options.each, payload: options.payload };
    if shape.keys == 0 || shape.keys > 10_000_000 {
        return Err("keys are 1 to 10,000,000".into());
    }
    if shape.each == 0 || shape.each > interlock::MOST_KEYS || shape.each as u64 > shape.keys {
        let most = interlock::MOST_KEYS;
        return Err(format!("a message has 1 to {most} keys, and no more than there are").into());
    }
    if shape.payload < book::STAMP {
        return Err(format!("a payload has at least {} bytes", book::STAMP).into());
    }
    if options.clients == 0 || options.batch == 0 || options.batch > 1_024 {
        return Err("clients are at least 1, a batch is 1 to 1,024".into());
    }
    if options.durable > 2 {
        return Err("durable is 0, 1 or 2".into());
    }
    Ok(shape)
}
