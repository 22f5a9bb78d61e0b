//! The comparison of two answers, and the only place that says what is not compared.
//!
//! Masked, in answers to `explain` and `explain_key`:
//! 1. which messages a waiting barrier names as its holders, and so which nodes follow from
//!    them. Everything before it holds a barrier up; a scheduler may name a few of them. They
//!    must be before it, each once, the leased first; with them given, all else is compared.
//! 2. the age of a message, which the scheduler may give up to 99 µs too high: it keeps the times
//!    of puts in steps of 100 µs.
//! 3. nothing else.

use interlock_core::queue::schedules::trace::{Answer, Step};
use interlock_core::queue::types::Explained;

use crate::model::Model;

/// The ages of two messages put within this are one age, µs.
const AGE_STEP: u64 = 100;

/// Tells in words what is wrong with `answer`; `model` has just answered the same step itself.
pub fn differ(model: &Model, step: &Step, expected: &Answer, answer: &Answer) -> Option<String> {
    if expected == answer {
        return None;
    }
    let Answer::Explained(Some(given)) = answer else {
        return Some(wrong(expected, answer));
    };
    let masked = model.explain(&step.call, Some(given)).map(|exact| with_ages_of(given, exact));
    let masked = Answer::Explained(masked);
    (masked != *answer).then(|| wrong(&masked, answer))
}

fn with_ages_of(given: &Explained, mut exact: Explained) -> Explained {
    for (node, given) in exact.nodes.iter_mut().zip(&given.nodes) {
        if (node.age..node.age + AGE_STEP).contains(&given.age) {
            node.age = given.age;
        }
    }
    exact
}

fn wrong(expected: &Answer, answer: &Answer) -> String {
    match (expected, answer) {
        // Twenty-one counts side by side hide the one that differs.
        (Answer::Stats(expected), Answer::Stats(answer)) => {
            let (expected, answer) = (format!("{expected:#?}"), format!("{answer:#?}"));
            let differing: Vec<String> = expected
                .lines()
                .zip(answer.lines())
                .filter(|(one, other)| one != other)
                .map(|(one, other)| format!("wanted {} got {}", one.trim(), other.trim()))
                .collect();
            differing.join("; ")
        }
        _ => format!("wanted {expected:?}\n   got {answer:?}"),
    }
}
