//! Measures how long a queue is held for a snapshot, and how long a restart takes: `cargo run
//! --release -p interlock-engine --example restart [messages] [folder]`. Payloads of 100 bytes, two
//! keys a message of 100,000. The figures are of the machine and of the moment.

#[cfg(target_os = "linux")]
mod measured;

fn main() {
    #[cfg(target_os = "linux")]
    measured::run();
}
