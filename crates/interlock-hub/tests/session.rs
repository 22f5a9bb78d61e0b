//! A connection without its socket: bytes in, bytes out.

mod threadless;

use interlock_hub::session::Step;
use interlock_hub::shared::mailbox::Mail;
use interlock_hub::shared::settings::{Live, Settings};
use interlock_hub::shared::Core;
use threadless::Hub;

#[test]
fn a_conversation_cut_at_any_byte_is_the_same_conversation() {
    let conversation = b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\nSUBSCRIBE a b\r\n*3\r\n$7\r\nPUBLISH\r\n$1\r\n\
        a\r\n$1\r\nx\r\nPSUBSCRIBE a*\r\nPUBLISH a y\r\nUNSUBSCRIBE a\r\nPUBLISH a z\r\nPING\r\nCLIENT \
        REPLY SKIP\r\nPING\r\nPING 2\r\nnonsense\r\nRESET\r\nPUBLISH a q\r\n*1\r\n$0\r\n\r\nPING\r\n";
    let mut whole = String::new();
    for cut in 0..conversation.len() {
        let mut hub = Hub::new(Settings::default());
        let mut client = hub.client(1);
        let said = hub.talk(&mut client, &conversation[..cut])
            + &hub.talk(&mut client, &conversation[cut..]);
        if cut == 0 {
            whole = said.clone();
        }
        assert_eq!(said, whole, "cut at {cut}");
    }
    let behind_greeting = &whole[whole.find("*0\r\n").unwrap() + 4..];
    assert!(behind_greeting.starts_with(
        ">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n\
         >3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n:1\r\n"
    ));
    assert!(behind_greeting.ends_with(
        "+RESET\r\n:0\r\n-ERR unknown command '', with args beginning with: \r\n+PONG\r\n"
    ));
}

#[test]
fn a_new_subscriber_receives_no_earlier_messages() {
    let mut hub = Hub::new(Settings::default());
    let mut old = hub.client(1);
    let mut new = hub.client(2);
    hub.talk(&mut old, b"SUBSCRIBE t\r\n");
    let mut core = Core { shared: &hub.shared, local: &mut hub.local, now: 0, clock: || 0 };
    let mut at = 0;
    let requests = b"PUBLISH t 1\r\nSUBSCRIBE t\r\n";
    let step = new.session.run(requests, &mut at, &mut core, &mut new.out);
    assert_eq!((step, &new.out[..]), (Step::Sync, &b":1\r\n"[..]));
    assert_eq!(
        hub.local.subscribers.of(interlock_hub::topics::directory::SubscriptionKind::Topic, b"t"),
        [1]
    );
    assert_eq!(hub.deliver(&mut old), 1);
    let mut core = Core { shared: &hub.shared, local: &mut hub.local, now: 0, clock: || 0 };
    let step = new.session.run(requests, &mut at, &mut core, &mut new.out);
    assert_eq!((step, at), (Step::Idle, requests.len()));
    assert!(new.out.ends_with(b"$9\r\nsubscribe\r\n$1\r\nt\r\n:1\r\n"));
}

#[test]
fn an_unfinished_request_over_its_limit_ends_the_connection() {
    let mut hub = Hub::new(Settings {
        live: Live { query_limit: 100, ..Live::default() },
        ..Settings::default()
    });
    let mut client = hub.client(1);
    let head = b"*2\r\n$4\r\nECHO\r\n$500\r\n";
    assert_eq!(hub.feed(&mut client, head).0, Step::Idle);
    assert_eq!(hub.feed(&mut client, &[b'x'; 60]).0, Step::Idle);
    assert_eq!(hub.feed(&mut client, &[b'x'; 60]).0, Step::Cut);
    let counters = hub.shared.counters.all();
    assert!(counters.contains(&("client_query_buffer_limit_disconnections", 1)), "{counters:?}");
}

#[test]
fn a_protocol_error_is_answered_and_later_commands_are_not_run() {
    let mut hub = Hub::new(Settings::default());
    let mut client = hub.client(1);
    let (step, _) = hub.feed(&mut client, b"PING\r\n*1\r\n:4\r\nPING\r\n");
    assert_eq!(step, Step::Close);
    assert_eq!(client.out, b"+PONG\r\n-ERR Protocol error: expected '$', got ':'\r\n");
}

#[test]
fn a_closed_connection_leaves_no_trace() {
    let mut hub = Hub::new(Settings::default());
    let mut client = hub.client(1);
    hub.talk(&mut client, b"SUBSCRIBE a b\r\nSUBSCRIBE a\r\nPSUBSCRIBE a* b*\r\n");
    hub.talk(&mut client, b"UNSUBSCRIBE a\r\n");
    let mut core = Core { shared: &hub.shared, local: &mut hub.local, now: 0, clock: || 0 };
    client.session.close(&mut core);
    assert_eq!((hub.shared.directory.topic_count(), hub.shared.directory.pattern_count()), (0, 0));
    assert!(hub.shared.registry.is_empty());
    let mut other = hub.client(2);
    assert_eq!(hub.talk(&mut other, b"PUBLISH a x\r\nPUBLISH b x\r\n"), ":0\r\n:0\r\n");
    assert!(hub.local.chunk.is_empty());
}

#[test]
fn client_kill_closes_another_connection_and_the_own_one_after_its_reply() {
    let mut hub = Hub::new(Settings::default());
    let (mut one, _two) = (hub.client(1), hub.client(2));
    let (step, _) = hub.feed(&mut one, b"CLIENT KILL ID 2\r\nCLIENT KILL ID 2\r\n");
    assert_eq!((step, &one.out[..]), (Step::Idle, &b":1\r\n:0\r\n"[..]));
    let mail = hub.shared.mailboxes[0].take();
    assert!(matches!(&mail[..], [Mail::Kill(card)] if card.id == 2));
    one.out.clear();
    assert_eq!(hub.feed(&mut one, b"CLIENT KILL ID 1 SKIPME no\r\nPING\r\n").0, Step::Close);
    assert_eq!(one.out, b":1\r\n");
}

#[test]
fn a_long_request_is_run_completely_after_earlier_publishes() {
    let many: Vec<String> = (0..100).map(|number| format!("n{number}")).collect();
    let array = format!("*101\r\n$9\r\nSUBSCRIBE\r\n{}", many.iter().fold(String::new(), bulk));
    let inline = format!("SUBSCRIBE {}\r\n", many.join(" "));
    for long in [array, inline] {
        let mut hub = Hub::new(Settings::default());
        let (mut old, mut new) = (hub.client(1), hub.client(2));
        hub.talk(&mut old, b"SUBSCRIBE t\r\n");
        let requests = format!("PUBLISH t 1\r\n{long}");
        let mut core = Core { shared: &hub.shared, local: &mut hub.local, now: 0, clock: || 0 };
        let mut at = 0;
        let step = new.session.run(requests.as_bytes(), &mut at, &mut core, &mut new.out);
        assert_eq!(step, Step::Sync);
        hub.deliver(&mut old);
        let mut core = Core { shared: &hub.shared, local: &mut hub.local, now: 0, clock: || 0 };
        let step = new.session.run(requests.as_bytes(), &mut at, &mut core, &mut new.out);
        assert_eq!((step, at), (Step::Idle, requests.len()));
        assert_eq!(
            new.session
                .state
                .names(interlock_hub::topics::directory::SubscriptionKind::Topic)
                .len(),
            100
        );
    }
}

fn bulk(before: String, word: &String) -> String {
    format!("{before}${}\r\n{word}\r\n", word.len())
}

#[test]
fn a_client_with_replies_off_gets_none_to_a_protocol_error() {
    for mode in ["OFF", "SKIP"] {
        let mut hub = Hub::new(Settings::default());
        let mut client = hub.client(1);
        let requests = format!("CLIENT REPLY {mode}\r\n*1\r\n:4\r\n");
        assert_eq!(hub.feed(&mut client, requests.as_bytes()).0, Step::Close);
        assert_eq!(client.out, b"");
    }
}

#[test]
fn client_names_have_a_maximum_length() {
    let mut hub = Hub::new(Settings::default());
    let mut client = hub.client(1);
    for (most, too_long, kept) in [
        ("CLIENT SETNAME ", "ERR Client names", "name="),
        ("HELLO 2 SETNAME ", "ERR Client names", "name="),
        ("CLIENT SETINFO LIB-NAME ", "ERR lib-name", "lib-name="),
        ("CLIENT SETINFO LIB-VER ", "ERR lib-ver", "lib-ver="),
    ] {
        let (fits, long) = ("x".repeat(1024), "y".repeat(1025));
        assert!(!hub.talk(&mut client, format!("{most}{fits}\r\n").as_bytes()).starts_with('-'));
        let refused = hub.talk(&mut client, format!("{most}{long}\r\n").as_bytes());
        assert_eq!(refused, format!("-{too_long} cannot be longer than 1024 bytes.\r\n"));
        let shown = hub.talk(&mut client, b"CLIENT INFO\r\n");
        assert!(shown.contains(&format!("{kept}{fits}")), "{shown}");
    }
}

#[test]
fn many_short_requests_with_long_replies_pause_to_check_limits() {
    let mut hub = Hub::new(Settings::default());
    let mut client = hub.client(1);
    let (requests, mut at) = (b"COMMAND DOCS\r\n".repeat(1000), 0);
    let mut core = Core { shared: &hub.shared, local: &mut hub.local, now: 0, clock: || 0 };
    let step = client.session.run(&requests, &mut at, &mut core, &mut client.out);
    assert_eq!(step, Step::Sync);
    assert!(client.out.len() < 2 << 20, "{}", client.out.len());
}
