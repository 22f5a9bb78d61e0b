//! Places for those who connect, in all and by address, are taken and given back.

use interlock_hub::shared::mailbox::{Mailbox, Peer};
use interlock_hub::shared::settings::{Live, Settings};
use interlock_hub::shared::{Rejection, Shared};

fn shared(settings: Settings) -> Shared {
    Shared::new(settings, vec![Mailbox::new().unwrap()], 0).unwrap()
}

fn peer(address: &str, is_tcp: bool) -> Peer {
    Peer { address: address.into(), local: String::new(), is_tcp, speaks_tls: false }
}

#[test]
fn a_connection_slot_of_an_address_is_freed() {
    let shared = shared(Settings {
        live: Live { max_per_address: 2, ..Live::default() },
        ..Settings::default()
    });
    let (one, other, unix) =
        (peer("10.0.0.1:1", true), peer("10.0.0.2:1", true), peer("/s:0", false));
    for _ in 0..3 {
        assert_eq!([shared.arrive(&one), shared.arrive(&one)], [Ok(()), Ok(())]);
        assert_eq!(shared.arrive(&one), Err(Rejection::Address));
        assert_eq!(shared.arrive(&other), Ok(()));
        for _ in 0..3 {
            assert_eq!(shared.arrive(&unix), Ok(()));
        }
        shared.left(&one);
        assert_eq!(shared.arrive(&one), Ok(()));
        for left in [&one, &one, &other, &unix, &unix, &unix] {
            shared.left(left);
        }
        assert_eq!(shared.connected(), 0);
    }
}

#[test]
fn a_connection_slot_of_the_server_is_freed() {
    let shared =
        shared(Settings { live: Live { maxclients: 1, ..Live::default() }, ..Settings::default() });
    let one = peer("10.0.0.1:1", true);
    for _ in 0..3 {
        assert_eq!(shared.arrive(&one), Ok(()));
        assert_eq!(shared.arrive(&one), Err(Rejection::Full));
        shared.left(&one);
    }
}
