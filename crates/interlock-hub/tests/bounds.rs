//! The bounds on what one client can make the hub keep or do: in bytes and steps, never in time.

mod threadless;

use std::sync::atomic::Ordering::Relaxed;

use interlock_hub::access::registry::Part;
use interlock_hub::session::Step;
use interlock_hub::shared::events::Answer;
use interlock_hub::shared::mailbox::Mail;
use interlock_hub::shared::settings::{Live, Settings, SlowLog};
use interlock_hub::shared::Core;
use threadless::{Client, Hub};

fn hub(live: Live) -> Hub {
    Hub::new(Settings { live, ..Settings::default() })
}

fn close(hub: &mut Hub, mut client: Client) {
    let mut core = Core { shared: &hub.shared, local: &mut hub.local, now: 0, clock: || 0 };
    client.session.close(&mut core);
}

fn count(hub: &Hub, name: &str) -> u64 {
    hub.shared.counters.all().into_iter().find(|(known, _)| *known == name).unwrap().1
}

#[test]
fn subscriptions_of_one_client_end_at_their_bound_and_a_call_has_all_or_none() {
    let mut hub = hub(Live { subscriptions: 2_000, ..Live::default() });
    let mut client = hub.client(1);
    hub.talk(&mut client, b"HELLO 3\r\nSUBSCRIBE a b c\r\nPSUBSCRIBE a*\r\n");
    let held = client.session.state.card.held(Part::Subscribed);
    assert!((1_000..=2_000).contains(&held), "{held}");
    for call in ["SUBSCRIBE d e f g", "PSUBSCRIBE x* y*", "SSUBSCRIBE a b c d e"] {
        let said = hub.talk(&mut client, format!("{call}\r\n").as_bytes());
        assert!(said.starts_with("-ERR the subscriptions of this client would take "), "{said}");
        assert!(said.ends_with(" bytes; limits.pubsub.subscriptions allows 2000\r\n"), "{said}");
        assert_eq!(client.session.state.card.held(Part::Subscribed), held);
    }
    assert_eq!(count(&hub, "subscriptions_refused"), 3);
    // What it has already takes nothing more.
    let again = hub.talk(&mut client, b"SUBSCRIBE a b c\r\n");
    assert_eq!(again.matches("subscribe").count(), 3);
    hub.talk(&mut client, b"UNSUBSCRIBE\r\nPUNSUBSCRIBE\r\n");
    assert_eq!((client.session.state.card.held(Part::Subscribed), hub.local.held), (0, 0));
    assert!(hub.talk(&mut client, b"SSUBSCRIBE a b c d e\r\n").contains(":5\r\n"));
    close(&mut hub, client);
    assert_eq!(hub.local.held, 0);
}

#[test]
fn a_hundred_thousand_patterns_with_one_prefix_are_added_and_removed_one_by_one() {
    let mut hub = hub(Live { subscriptions: 0, ..Live::default() });
    let (mut one, mut other) = (hub.client(1), hub.client(2));
    for part in 0..100 {
        let patterns = (0..1_000).map(|n| format!(" *{}", part * 1_000 + n)).collect::<String>();
        hub.talk(&mut one, format!("PSUBSCRIBE{patterns}\r\n").as_bytes());
    }
    assert_eq!(hub.shared.directory.pattern_count(), 100_000);
    hub.talk(&mut other, b"PSUBSCRIBE *7 *77\r\n");
    hub.talk(&mut one, b"PUNSUBSCRIBE *7 *99999 *0\r\n");
    let mut found = Vec::new();
    hub.shared.directory.matching(b"x99977", |name, interest| {
        found.push((String::from_utf8(name.to_vec()).unwrap(), interest.receivers));
    });
    found.sort();
    let names = ["*7", "*77", "*977", "*9977", "*99977"];
    let receivers = [1, 2, 1, 1, 1];
    assert_eq!(found, names.map(str::to_owned).into_iter().zip(receivers).collect::<Vec<_>>());
    close(&mut hub, one);
    assert_eq!(hub.shared.directory.pattern_count(), 2);
    close(&mut hub, other);
    assert_eq!(hub.shared.directory.pattern_count(), 0);
}

#[test]
fn patterns_and_topics_have_a_maximum_length() {
    let mut hub = hub(Live::default());
    let mut client = hub.client(1);
    hub.talk(&mut client, b"HELLO 3\r\n");
    for (call, most, what, behind) in [
        ("PSUBSCRIBE ", 1024, "pattern", ""),
        ("PSUBSCRIBE a ", 1024, "pattern", ""),
        ("PUBSUB CHANNELS ", 1024, "pattern", ""),
        ("PUBSUB SHARDCHANNELS ", 1024, "pattern", ""),
        ("COMMAND LIST FILTERBY PATTERN ", 1024, "pattern", ""),
        ("SUBSCRIBE ", 4096, "topic", ""),
        ("SSUBSCRIBE a ", 4096, "topic", ""),
        ("PUBLISH ", 4096, "topic", " x"),
        ("SPUBLISH ", 4096, "topic", " x"),
    ] {
        let (fits, long) = ("*".repeat(most), "*".repeat(most + 1));
        let said = hub.talk(&mut client, format!("{call}{fits}{behind}\r\n").as_bytes());
        assert!(!said.starts_with('-'), "{call} {said}");
        let said = hub.talk(&mut client, format!("{call}{long}{behind}\r\n").as_bytes());
        let refused =
            format!("-ERR a {what} may have up to {most} bytes, this one has {}\r\n", most + 1);
        assert_eq!(said, refused, "{call}");
    }
    let many = "*x ".repeat(9_000);
    let said = hub.talk(&mut client, format!("CONFIG GET {many}\r\n").as_bytes());
    assert_eq!(said, "-ERR patterns of more than 16384 bytes together\r\n");
    let many = "a b ".repeat(501);
    let said = hub.talk(&mut client, format!("CONFIG SET {many}\r\n").as_bytes());
    assert_eq!(said, "-ERR more than 500 settings\r\n");
}

/// Runs a call that continues by itself; returns its answer and the number of steps.
fn stepwise(
    hub: &mut Hub,
    client: &mut Client,
    call: &[u8],
    between: &mut Client,
) -> (String, u32) {
    let (mut step, _) = hub.feed(client, call);
    let mut steps = 1;
    while step == Step::Wait {
        let [Mail::Answer(token, Answer::Turn)] = hub.shared.mailboxes[0].take()[..] else {
            panic!("it has told itself to go on, once");
        };
        assert_eq!(token, client.session.state.card.token);
        assert!(client.out.is_empty(), "nothing of an answer comes before all of it");
        assert_eq!(hub.talk(between, b"PING\r\n"), "+PONG\r\n");
        let mut core = Core { shared: &hub.shared, local: &mut hub.local, now: 0, clock: || 0 };
        client.session.answered(Answer::Turn, &mut core, &mut client.out);
        steps += 1;
        (step, _) = hub.feed(client, b"");
    }
    (String::from_utf8(std::mem::take(&mut client.out)).unwrap(), steps)
}

#[test]
fn topics_are_listed_in_steps_between_other_clients() {
    let mut hub = hub(Live { subscriptions: 0, ..Live::default() });
    let (mut subscriber, mut asking, mut other) = (hub.client(1), hub.client(2), hub.client(3));
    for part in 0..100 {
        let topics = (0..1_000).map(|n| format!(" {}.{n:0>60}", part)).collect::<String>();
        hub.talk(&mut subscriber, format!("SUBSCRIBE{topics}\r\n").as_bytes());
    }
    let (all, steps) = stepwise(&mut hub, &mut asking, b"PUBSUB CHANNELS\r\n", &mut other);
    assert!(all.starts_with("*100000\r\n") && all.lines().count() == 200_001);
    assert!(steps <= 3, "{steps}");
    let evil = "*0".repeat(500) + "x";
    let call = format!("PUBSUB CHANNELS {evil}\r\n");
    let (none, steps) = stepwise(&mut hub, &mut asking, call.as_bytes(), &mut other);
    assert_eq!(none, "*0\r\n");
    // Each step compares 4 MiB at most: a hundred thousand topics of 63 bytes with one of a thousand.
    assert!(steps > 1_400, "{steps}");
    let call = b"PUBSUB CHANNELS 7.*\r\nPING\r\n";
    let (some, _) = stepwise(&mut hub, &mut asking, call, &mut other);
    assert!(some.starts_with("*1000\r\n") && some.ends_with("\r\n+PONG\r\n"), "{}", some.len());
}

#[test]
fn subscriber_names_are_gathered_in_steps_and_only_the_first_kept() {
    let mut hub = hub(Live { subscriptions: 0, ..Live::default() });
    let (mut subscriber, mut asking) = (hub.client(1), hub.client(2));
    for part in 0..10 {
        let names = (0..1_000).map(|n| format!(" {part}.{n:0>60}")).collect::<String>();
        hub.talk(&mut subscriber, format!("PSUBSCRIBE{names}\r\n").as_bytes());
    }
    let pattern = "*0".repeat(500) + "*";
    let (step, _) = hub.feed(&mut asking, format!("PUBSUB CLIENTS {pattern}\r\n").as_bytes());
    assert_eq!(step, Step::Wait);
    for steps in 1.. {
        match &hub.shared.mailboxes[0].take()[..] {
            [Mail::Answer(_, Answer::Turn)] => {}
            [Mail::Survey(survey)] => {
                // Each compares 4 MiB at most: ten thousand names of 62 bytes with one of a thousand.
                assert!(steps > 140, "{steps}");
                assert_eq!((survey.names.len(), survey.total), (0, 0));
                break;
            }
            mail => panic!("{} letters", mail.len()),
        }
        let mut core = Core { shared: &hub.shared, local: &mut hub.local, now: 0, clock: || 0 };
        asking.session.answered(Answer::Turn, &mut core, &mut asking.out);
    }
    let mut asking = hub.client(3);
    hub.feed(&mut asking, b"PUBSUB CLIENTS LIMIT 5\r\n");
    let [Mail::Survey(survey)] = &hub.shared.mailboxes[0].take()[..] else { panic!("one") };
    assert_eq!((survey.names.len(), survey.total), (5, 10_000));
    assert!(survey.names.iter().all(|(_, name)| name.starts_with(b"0.0")));
}

#[test]
fn a_list_of_topics_that_is_too_long_is_refused() {
    let mut hub = hub(Live { subscriptions: 0, ..Live::default() });
    let (mut subscriber, mut asking, mut other) = (hub.client(1), hub.client(2), hub.client(3));
    for n in 0..9_000 {
        hub.talk(&mut subscriber, format!("SUBSCRIBE {n:x>4000}\r\n").as_bytes());
    }
    let (said, _) = stepwise(&mut hub, &mut asking, b"PUBSUB CHANNELS\r\n", &mut other);
    assert_eq!(said, "-ERR more than 33554432 bytes of topics; give a pattern\r\n");
    let (said, _) = stepwise(&mut hub, &mut asking, b"PUBSUB CHANNELS *x77\r\n", &mut other);
    assert!(said.starts_with("*1\r\n$4000\r\n"));
}

#[test]
fn a_long_reply_to_a_short_request_can_be_requested_a_bounded_number_of_times() {
    let mut hub = hub(Live::default());
    let mut client = hub.client(1);
    let said =
        hub.talk(&mut client, format!("CLIENT LIST ID{}\r\n", " 1".repeat(1_000)).as_bytes());
    assert_eq!(said.matches("id=1 ").count(), 1_000);
    for call in ["CLIENT LIST ID", "COMMAND DOCS", "COMMAND INFO"] {
        let call = format!("{call}{}\r\n", " 1".repeat(1_001));
        assert!(hub.talk(&mut client, call.as_bytes()).starts_with("-ERR more "));
    }
}

#[test]
fn when_clients_together_use_too_much_memory_the_largest_are_disconnected() {
    let mut hub = hub(Live { clients_memory: 10_000, ..Live::default() });
    let mut clients: Vec<Client> = (1..=4).map(|slot| hub.client(slot)).collect();
    for (client, topics) in clients.iter_mut().zip([9, 12, 3, 15]) {
        let names: String = (0..topics).map(|n| format!(" topic{n}")).collect();
        hub.talk(client, format!("HELLO 3\r\nSUBSCRIBE{names}\r\n").as_bytes());
    }
    hub.talk(&mut clients[3], b"CLIENT NO-EVICT on\r\n");
    let sum: usize = clients.iter().map(|client| client.session.state.card.holds()).sum();
    assert_eq!(hub.local.held, sum as isize);
    let killed = |hub: &Hub| -> Vec<u64> {
        let mail = hub.shared.mailboxes[0].take();
        let id = |mail: &Mail| match mail {
            Mail::Kill(card) => card.id,
            _ => panic!("nothing else is sent"),
        };
        mail.iter().map(id).collect()
    };
    // 39 of them take 10,257 bytes, about; the largest asked to be spared.
    hub.shared.clients_hold(0, hub.local.held);
    assert_eq!((killed(&hub), count(&hub, "evicted_clients")), (vec![2], 1));
    // It is already being ended, and need not be again.
    hub.shared.clients_hold(0, hub.local.held - 1);
    hub.shared.clients_hold(0, hub.local.held);
    assert_eq!(killed(&hub), []);
    close(&mut hub, clients.remove(1));
    hub.shared.clients_hold(0, hub.local.held);
    assert_eq!((killed(&hub), hub.shared.clients_bytes()), (vec![], hub.local.held as usize));
    // Less is allowed from now on.
    hub.shared.apply(Live { clients_memory: 5_000, ..Live::default() });
    let mail = hub.shared.mailboxes[0].take();
    let ends = mail.iter().filter(|mail| matches!(mail, Mail::Kill(card) if card.id == 1)).count();
    assert_eq!((ends, count(&hub, "evicted_clients")), (1, 2));
    assert!(!clients[2].session.state.card.killed.load(Relaxed));
}

#[test]
fn an_unfinished_request_counts_towards_a_client_s_memory() {
    let mut hub = hub(Live::default());
    let mut client = hub.client(1);
    hub.feed(&mut client, b"*2\r\n$4\r\nECHO\r\n$5000\r\n");
    hub.feed(&mut client, &[b'x'; 4_000]);
    let held = client.session.state.card.held(Part::Asked);
    assert!((4_000..6_000).contains(&held), "{held}");
    assert_eq!(hub.local.held, held as isize);
    hub.talk(&mut client, &[&[b'x'; 1_000][..], b"\r\n"].concat());
    assert_eq!((client.session.state.card.holds(), hub.local.held), (0, 0));
}

#[test]
fn the_client_list_and_the_slow_log_are_bounded() {
    let slow_log = SlowLog { threshold: Some(0), length: 10_000 };
    let mut hub = hub(Live { slow_log, ..Live::default() });
    let mut clients: Vec<Client> = (1..=11_000).map(|slot| hub.client(slot)).collect();
    for client in &clients {
        let card = &client.session.state.card;
        *card.name.lock() = vec![b'n'; 1024].into();
        *card.library.lock() = [vec![b'l'; 1024].into(), vec![b'v'; 1024].into()];
    }
    let said = hub.talk(&mut clients[0], b"CLIENT LIST\r\n");
    assert_eq!(&said[..48], "-ERR more than 33554432 bytes of clients; give I");
    let said = hub.talk(&mut clients[0], b"CLIENT LIST ID 7 8999\r\n");
    assert_eq!(said.matches("id=").count(), 2);
    hub.talk(&mut clients[1], &b"PUBSUB CHANNELS x\r\n".repeat(5_000));
    assert!(hub.talk(&mut clients[0], b"SLOWLOG GET -1\r\n").starts_with("*4096\r\n"));
}
