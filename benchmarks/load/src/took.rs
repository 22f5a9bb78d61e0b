//! The time that messages took from when they were due.

/// Those due before some moment are not counted.
pub struct Took {
    counted: u64,
    each: Vec<u32>,
}

impl Took {
    pub fn new(counted: u64, expected: usize) -> Self {
        Took { counted, each: Vec::with_capacity(expected) }
    }

    pub fn note(&mut self, due: u64, now: u64) {
        if due >= self.counted {
            self.each.push(u32::try_from(now.saturating_sub(due)).unwrap_or(u32::MAX));
        }
    }

    pub fn count(&self) -> usize {
        self.each.len()
    }

    /// Before parts are asked for.
    pub fn sort(&mut self) {
        self.each.sort_unstable();
    }

    /// µs that this part of the sorted deliveries did not exceed.
    pub fn part(&self, part: f64) -> Result<f64, &'static str> {
        let index = (self.each.len() as f64 * part) as usize;
        let last = self.each.len().checked_sub(1).ok_or("nothing was delivered")?;
        Ok(f64::from(self.each[index.min(last)]) / 1e3)
    }
}
