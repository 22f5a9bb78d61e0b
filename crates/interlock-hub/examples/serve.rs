//! The hub without Python, for profilers: `cargo run --release --example serve -- PORT WORKERS`.

use interlock_hub::server::Server;
use interlock_hub::shared::settings::{Live, OutputLimit, Settings};

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>());
    let mut next = |default| arguments.next().and_then(Result::ok).unwrap_or(default);
    let (port, workers) = (next(6399) as u16, next(1));
    let pubsub = OutputLimit::default();
    let server = Server::start(Settings {
        port,
        workers,
        live: Live { pubsub, ..Live::default() },
        ..Settings::default()
    })?;
    println!("listening on {}", server.addresses().join(", "));
    loop {
        std::thread::park();
    }
}
