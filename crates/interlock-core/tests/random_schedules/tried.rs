// Made by `make generate` from wire/: change that.

//! Values of options in random schedules, in the order of `NUMBERS`.

pub const TRIED: [&[u64]; 3] =
    [&[300_000_000, 0, 1, 9, 200], &[10_000, 0, 1, 2, 3], &[2_592_000_000_000, 0, 1, 30, 1000]];
