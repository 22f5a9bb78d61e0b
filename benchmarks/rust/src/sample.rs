//! One run of one side, and the order in which sides take turns.

/// A measured run.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// In the row's unit.
    pub value: f64,
    pub messages: u64,
    pub lost: u64,
    pub misordered: u64,
}

impl Sample {
    /// `seconds` for all messages, as nanoseconds of one.
    pub fn each(seconds: f64, messages: u64, misordered: u64) -> Self {
        Sample { value: seconds / messages as f64 * 1e9, messages, lost: 0, misordered }
    }

    pub fn print(&self, pair: usize, side: &str) {
        let Sample { value, messages, lost, misordered } = self;
        println!(
            "{{\"pair\": {pair}, \"side\": \"{side}\", \"value\": {value}, \
             \"messages\": {messages}, \"lost\": {lost}, \"misordered\": {misordered}}}"
        );
    }
}

/// Pairs in which the side that ran first runs second the next time; one pair unseen, to warm up.
pub fn alternating(repeat: usize, ours: impl Fn() -> Sample, peer: impl Fn() -> Sample) {
    ours();
    peer();
    for pair in 0..repeat {
        let (mine, theirs) = if pair % 2 == 0 {
            let mine = ours();
            (mine, peer())
        } else {
            let theirs = peer();
            (ours(), theirs)
        };
        mine.print(pair, "ours");
        theirs.print(pair, "peer");
    }
}

/// Samples of a row that has no peer.
pub fn absolute(repeat: usize, ours: impl Fn() -> Sample) {
    for pair in 0..repeat {
        ours().print(pair, "ours");
    }
}
