//! Settings of the simulations in the environment: the number of worlds, one world, and the
//! shortest that breaks.

use std::ops::Range;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Number of worlds of each kind.
pub fn count(usual: u64) -> u64 {
    number("INTERLOCK_WORLDS").unwrap_or(usual)
}

/// First seed of the long run.
pub fn first() -> u64 {
    number("INTERLOCK_FIRST").unwrap_or(0)
}

/// Kind, seed and steps of `INTERLOCK_WORLD=KIND:SEED[:STEPS]`; all steps unless it names some.
pub fn one(all: Vec<u64>) -> Option<(String, u64, Vec<u64>)> {
    let text = std::env::var("INTERLOCK_WORLD").ok()?;
    let mut parts = text.split(':');
    let kind = parts.next().expect("KIND:SEED").to_owned();
    let seed = parts.next().expect("KIND:SEED").parse().expect("a seed");
    let steps = parts
        .next()
        .map_or(all, |steps| steps.split(',').map(|step| step.parse().expect("a step")).collect());
    Some((kind, seed, steps))
}

/// Print the shortest world of `INTERLOCK_SHORTEST=KIND:WHAT`: leave out steps while the same thing
/// still breaks. `breaks` returns what a kind, a seed and steps break.
pub fn shortest(
    seeds: Range<u64>,
    all: &[u64],
    breaks: impl Fn(&str, u64, &[u64]) -> Option<String>,
) {
    let Ok(text) = std::env::var("INTERLOCK_SHORTEST") else { return };
    let (name, what) = text.split_once(':').expect("KIND:WHAT");
    let breaks = |seed: u64, steps: &[u64]| {
        breaks(name, seed, steps).is_some_and(|found| found.contains(what))
    };
    let mut shortest: Option<(u64, Vec<u64>)> = None;
    for seed in seeds.filter(|seed| breaks(*seed, all)) {
        let mut steps = all.to_vec();
        let mut size = all.len() / 2;
        loop {
            let (before, mut from) = (steps.len(), 0);
            while from < steps.len() {
                let mut fewer = steps.clone();
                fewer.drain(from..(from + size).min(steps.len()));
                if breaks(seed, &fewer) {
                    steps = fewer;
                } else {
                    from += size;
                }
            }
            if size == 1 && steps.len() == before {
                break;
            }
            size = (size / 2).max(1);
        }
        println!("seed {seed}: {} steps", steps.len());
        if shortest.as_ref().is_none_or(|(_, than)| steps.len() < than.len()) {
            shortest = Some((seed, steps));
        }
    }
    if let Some((seed, steps)) = shortest {
        let steps: Vec<_> = steps.iter().map(u64::to_string).collect();
        println!("{name}:{seed}:{}", steps.join(","));
    }
}
