//! The text of a schedule: its form, and the errors for malformed lines.
//!
//! That whatever is written reads back as it was is held by `random_schedules`, on its schedules.

use interlock_core::queue::schedules::trace::{Answer, Call, PutCall, Runner, Step};
use interlock_core::queue::schedules::trace_text::Schedule;
use interlock_core::queue::types::rules::{Rules, RULES};
use interlock_core::queue::types::{Options, Retry};

fn error(text: &str) -> String {
    text.parse::<Schedule>().expect_err("a line of it is wrong").to_string()
}

#[test]
fn a_line_says_only_what_is_not_the_default() {
    let put = PutCall {
        keys: vec![b"room 1".to_vec(), b"b".to_vec()],
        shared: vec![b"100%,|\xff".to_vec()],
        priority: -3,
        dedup: Some("na\u{ef}ve".into()),
        coalesce: Some(b"price 1".to_vec()),
        debounce: 5,
        within: 9,
        ..PutCall::default()
    };
    let step = |call| Step { now: 7, call }.to_string();
    assert_eq!(
        step(Call::Put(put.clone())),
        "7 put keys=room%201,b shared=100%25%2C%7C%FF priority=-3 dedup=na%C3%AFve \
         coalesce=price%201 debounce=5 within=9"
    );
    assert_eq!(step(Call::Put(PutCall::default())), "7 put");
    assert_eq!(step(Call::PutMany(vec![])), "7 put_many");
    assert_eq!(step(Call::PutMany(vec![PutCall::default(); 2])), "7 put_many | |");
    assert_eq!(step(Call::Pause { key: None }), "7 pause");
    assert_eq!(step(Call::Pause { key: Some(vec![]) }), "7 pause key=");
}

#[test]
fn comments_and_blank_lines_are_skipped_and_options_are_optional() {
    let text =
        "# from a recording\n\n  options max_messages=4 lease=none retry.jitter=false\n7 tick\n";
    let schedule: Schedule = text.parse().expect("a schedule");
    let options = Options {
        max_messages: 4,
        retry: Retry { jitter: false, ..Retry::default() },
        ..Options::default()
    };
    let steps = vec![Step { now: 7, call: Call::Tick }];
    assert_eq!(schedule, Schedule { options, rules: &RULES[0], steps });
    assert_eq!("7 tick".parse::<Schedule>().map(|read| read.options), Ok(Options::default()));
}

#[test]
fn an_error_names_the_line_and_what_is_wrong() {
    let cases = [
        ("1 tick\n\nsoon tick", "line 3: the time is \"soon\"; allowed: a whole number of µs"),
        ("1", "line 1: no call after the time"),
        ("1 putt", "line 1: no call is named \"putt\""),
        ("1 put colour=red", "line 1: put: no field is named \"colour\""),
        ("1 put keys", "line 1: put: \"keys\" is not of the form field=value"),
        ("1 put size=1 size=2", "line 1: put: size is given twice"),
        ("1 put keys=a%2", "line 1: put: keys: \"a%2\": % wants two hexadecimal digits"),
        ("1 put dedup=%FF", "line 1: put: dedup: not UTF-8"),
        ("1 put_many keys=a", "line 1: put_many: \"keys=a\" precedes the first |"),
        ("1 ack", "line 1: ack: no field token"),
        ("1 lease kind=all", "line 1: lease: kind: \"all\"; allowed: any, keyed, unkeyed"),
        ("1 tick\noptions", "line 2: options must precede the first call"),
        ("options retry.factor=inf", "line 1: options: retry.factor is not finite"),
    ];
    for (text, wanted) in cases {
        assert_eq!(error(text), wanted, "{text}");
    }
    let unknown = error("options rules=999");
    let wanted = "line 1: options: rules=999 is an unknown version of the rules; allowed: ";
    assert!(unknown.starts_with(wanted), "{unknown}");
    assert!(unknown.ends_with("recorded it, or a later one"), "{unknown}");
    let number = error("1 put priority=1000");
    assert!(number.starts_with("line 1: put: priority: \"1000\": "), "{number}");
}

/// Clause 20: a changed rule does not change what was recorded before.
#[test]
fn a_recording_is_replayed_by_the_rules_that_it_names() {
    static CHANGED: Rules = Rules { version: 999, backoff: |_, _, attempt| u64::from(attempt) };
    let text = "options rules=1 retry.first=500 retry.jitter=false\n\
                1 put\n1 lease\n1 nack token=1\n2 lease\n501 lease\n";
    let grants = |schedule: &Schedule| {
        let mut runner = Runner::of(schedule);
        let answers = schedule.steps.iter().map(|step| runner.apply(step)).collect::<Vec<_>>();
        let granted = |answer: &Answer| matches!(answer, Answer::Leased(all) if !all.is_empty());
        [granted(&answers[3]), granted(&answers[4])]
    };
    let recorded: Schedule = text.parse().unwrap();
    assert_eq!(grants(&recorded), [false, true], "the first version waits for 500 µs");
    let changed = Schedule { rules: &CHANGED, ..recorded.clone() };
    assert_eq!(grants(&changed), [true, false], "the changed rules wait for 1 µs");
    assert!(recorded.to_string().starts_with("options rules=1 "), "{recorded}");
    let old: Schedule = text.replace("rules=1 ", "").parse().unwrap();
    assert_eq!(old, recorded, "what names no version was recorded before there were two");
}
