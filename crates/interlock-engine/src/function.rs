//! The functions by name, and the class of each, to which rights attach.

/// The class of rights that a call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Produce,
    Consume,
    Read,
    Operate,
    Declare,
}

macro_rules! functions {
    ($($variant:ident $name:literal $class:ident)*) => {
        /// A function of the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Function { $($variant),* }

        impl Function {
            pub const ALL: &'static [Function] = &[$(Function::$variant),*];

            /// Its name behind `il1_`.
            pub fn name(self) -> &'static str {
                match self { $(Function::$variant => $name),* }
            }

            /// By its whole name, `il1_put`.
            pub fn named(name: &[u8]) -> Option<Function> {
                Function::of_name(name.strip_prefix(b"il1_")?)
            }

            /// By what is behind `il1_`.
            pub fn of_name(name: &[u8]) -> Option<Function> {
                $(if name == $name.as_bytes() { return Some(Function::$variant); })*
                None
            }

            pub fn class(self) -> Class {
                match self { $(Function::$variant => Class::$class),* }
            }
        }
    };
}

functions! {
    Next "next" Consume
    Put "put" Produce
    Lease "lease" Consume
    Settle "settle" Consume
    Extend "extend" Consume
    Configure "configure" Declare
    Result "result" Read
    Join "join" Read
    Cancel "cancel" Operate
    Revoke "revoke" Operate
    Retry "retry" Operate
    Skip "skip" Operate
    Bury "bury" Operate
    Requeue "requeue" Operate
    Discard "discard" Operate
    Purge "purge" Operate
    Restore "restore" Operate
    Drop "drop" Operate
    Pause "pause" Operate
    Resume "resume" Operate
    Seal "seal" Operate
    Reopen "reopen" Operate
    Stats "stats" Read
    Peek "peek" Read
    Scan "scan" Read
    Paused "paused" Read
    DeadLetters "dead_letters" Read
    Hot "hot" Read
    Explain "explain" Read
    Version "version" Read
    Queues "queues" Read
}

impl Function {
    /// Returns whether it takes one key, the queue; the others take none.
    pub fn takes_queue(self) -> bool {
        !matches!(self, Function::Version | Function::Queues)
    }

    /// The class of this call: `il1_configure REPLACE` operates.
    pub fn class_of(self, first: Option<&[u8]>) -> Class {
        match (self, first) {
            (Function::Configure, Some(b"REPLACE")) => Class::Operate,
            _ => self.class(),
        }
    }
}
