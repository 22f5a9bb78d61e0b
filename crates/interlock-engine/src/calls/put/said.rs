//! The options of a message, read and checked.

use std::borrow::Cow;

use interlock_core::queue::calls::coalesce::Coalesce;
use interlock_core::queue::scheduler::Put;
use interlock_core::queue::types::limits::{joined, names_of, BETWEEN};
use interlock_core::queue::types::{Behind, RetryPart, Then};

use crate::queue::declare::OneOf;
use crate::values::args::{Args, Read, Reader, What};
use crate::values::words::to_text;
use crate::wire::limits::*;
use crate::wire::options::MessageOption;

/// The options that a message comes with.
#[derive(Default)]
pub struct Said<'a> {
    pub priority: i8,
    pub delay: u64,
    pub barrier: bool,
    pub result: u64,
    pub quiet: bool,
    pub dedup: Option<Cow<'a, str>>,
    /// A dedup string without which the put is refused; it is not kept.
    pub after: Option<Cow<'a, str>>,
    pub window: Option<u64>,
    pub retry: Option<Box<RetryPart>>,
    /// Limit names, sorted and joined; empty: none.
    pub limit: Vec<u8>,
    /// Its group; empty: none.
    pub group: &'a [u8],
    /// The outcome for it behind a failure; `None`: as the queue says.
    pub behind: Option<Behind>,
    /// Its coalescing name, or an empty one.
    pub coalesce: Coalesce<'a>,
    /// The number of messages of its run and the label; empty: none.
    pub run: &'a [u8],
}

#[cold]
pub fn read_options<'a, A: Args + ?Sized>(
    from: &mut Reader<'a, A>,
    i: usize,
    count: u64,
) -> Read<Box<Said<'a>>> {
    let (mut said, mut seen) = (Box::<Said<'a>>::default(), 0u32);
    for _ in 0..count {
        let name = from.take(|| format!("messages[{i}].options"))?;
        let Some(option) = MessageOption::of_name(name) else {
            let text = format_args!("holds a name that is not {}", MessageOption::TOLD);
            return from.bad(|| format!("messages[{i}].options"), text);
        };
        if seen & 1 << option as u32 != 0 {
            let what = || format!("messages[{i}].options");
            return from.bad(what, format_args!("name {} twice", option.name()));
        }
        seen |= 1 << option as u32;
        said.read(option, from, || format!("messages[{i}].{}", option.name()))?;
    }
    Ok(said)
}

impl<'a> Said<'a> {
    fn read<A: Args + ?Sized>(
        &mut self,
        option: MessageOption,
        from: &mut Reader<'a, A>,
        what: impl What,
    ) -> Read<()> {
        let (least, most) = option.range();
        let mut number = || from.whole(least, most, what);
        match option {
            MessageOption::Priority => self.priority = number()? as i8,
            MessageOption::Delay => self.delay = number()? as u64,
            MessageOption::Dedup => self.dedup = Some(name(from, what)?),
            MessageOption::After => self.after = Some(name(from, what)?),
            MessageOption::Window => self.window = Some(number()? as u64),
            MessageOption::Barrier => self.barrier = number()? == 1,
            MessageOption::Result => self.result = number()? as u64,
            MessageOption::Quiet => self.quiet = number()? == 1,
            MessageOption::Limit => self.limit = limit_names(from, what)?,
            MessageOption::Group => self.group = group(from, what)?,
            MessageOption::Behind => self.behind = Some(Behind::read(from, what)?),
            MessageOption::Coalesce => self.coalesce.name = coalescing_name(from, what)?,
            MessageOption::Debounce => self.coalesce.debounce = number()? as u64,
            MessageOption::Within => self.coalesce.within = number()? as u64,
            MessageOption::Revision => self.coalesce.revision = number()? as u32,
            MessageOption::Run => self.run = run(from, what)?,
            MessageOption::Attempts => {
                let attempts = number()? as u32;
                self.policy().attempts = Some(Some(attempts).filter(|&most| most > 0));
            }
            MessageOption::First => self.policy().first = Some(number()? as u64),
            MessageOption::Factor => self.policy().factor = Some(number()? as f64 / 1000.0),
            MessageOption::Longest => self.policy().longest = Some(number()? as u64),
            MessageOption::Jitter => self.policy().jitter = Some(number()? == 1),
            MessageOption::Then => self.policy().then = Some(Then::read(from, what)?),
        }
        Ok(())
    }

    fn policy(&mut self) -> &mut RetryPart {
        self.retry.get_or_insert_default()
    }

    #[inline]
    pub fn coalesce(&self) -> Option<&Coalesce<'a>> {
        (!self.coalesce.name.is_empty()).then_some(&self.coalesce)
    }

    /// Refuses options that exclude each other.
    pub fn check_together<A: Args + ?Sized>(&self, from: &Reader<'_, A>, i: usize) -> Read<()> {
        let Coalesce { debounce, within, revision, .. } = self.coalesce;
        let named = self.coalesce().is_some();
        let restores = from.called == "restore";
        let checks = [
            (named && self.barrier, "COALESCE", "with BARRIER"),
            (named && self.dedup.is_some(), "COALESCE", "with DEDUP"),
            (debounce > 0 && !named, "DEBOUNCE", "without COALESCE"),
            (debounce > 0 && self.delay > 0, "DEBOUNCE", "with DELAY"),
            (within > 0 && debounce == 0, "WITHIN", "without DEBOUNCE"),
            (revision > 0 && !restores, "REVISION", "is only for il1_restore"),
            (revision > 0 && !named, "REVISION", "without COALESCE"),
        ];
        match checks.iter().find(|(wrong, ..)| *wrong) {
            None => Ok(()),
            Some((_, option, why)) => from.bad(|| format!("messages[{i}].{option}"), why),
        }
    }

    /// The put, but for keys.
    pub fn put(&self) -> Put<'_> {
        Put {
            priority: self.priority,
            delay: self.delay,
            dedup: self.dedup.as_deref(),
            barrier: self.barrier,
            quiet: self.quiet,
            retry: self.retry.as_deref(),
            window: self.window,
            limit: &self.limit,
            group: self.group,
            behind: self.behind,
            coalesce: self.coalesce(),
            run: self.run,
            ..Put::default()
        }
    }
}

/// Reads the group of a message.
pub fn group<'a, A: Args + ?Sized>(from: &mut Reader<'a, A>, what: impl What) -> Read<&'a [u8]> {
    let text = from.text(MAX_TEXT, what)?;
    if text.is_empty() {
        return from.bad(what, "is empty");
    }
    if text.contains(&BETWEEN) {
        return from.bad(what, "has the byte 0x1F");
    }
    Ok(text)
}

/// Reads the run of a message: `N:LABEL`, returned without leading zeros.
pub fn run<'a, A: Args + ?Sized>(from: &mut Reader<'a, A>, what: impl What) -> Read<&'a [u8]> {
    let text = from.text(MAX_RUN, what)?;
    if text.is_empty() {
        return from.bad(what, "is empty");
    }
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let zeros = text[..digits].iter().take_while(|&&byte| byte == b'0').count();
    let number = std::str::from_utf8(&text[zeros..digits]).ok().and_then(|text| text.parse().ok());
    match number {
        Some(2..=MAX_BATCH) if text.get(digits) == Some(&b':') => Ok(&text[zeros..]),
        _ => from.bad(what, "is not N:LABEL with N from 2 to 1,024"),
    }
}

/// Reads a coalescing name.
fn coalescing_name<'a, A: Args + ?Sized>(
    from: &mut Reader<'a, A>,
    what: impl What,
) -> Read<&'a [u8]> {
    let name = from.text(MAX_KEY_BYTES, what)?;
    if name.is_empty() {
        return from.bad(what, "is empty");
    }
    Ok(name)
}

/// Reads the limit names of a message.
pub fn limit_names<A: Args + ?Sized>(from: &mut Reader<'_, A>, what: impl What) -> Read<Vec<u8>> {
    let text = from.text(MAX_TEXT, what)?;
    if text.is_empty() {
        return from.bad(what, "is empty");
    }
    let Some(names) = names_of(text) else {
        return from.bad(what, "has an empty name");
    };
    let count = 1 + text.iter().filter(|&&byte| byte == BETWEEN).count();
    if count > MAX_LIMIT_NAMES {
        return from.bad(what, format_args!("has {count} names; at most {MAX_LIMIT_NAMES}"));
    }
    Ok(joined(&names))
}

/// Reads a dedup string.
fn name<'a, A: Args + ?Sized>(from: &mut Reader<'a, A>, what: impl What) -> Read<Cow<'a, str>> {
    let text = from.text(MAX_TEXT, what)?;
    if text.is_empty() {
        return from.bad(what, "is empty");
    }
    Ok(to_text(text))
}
