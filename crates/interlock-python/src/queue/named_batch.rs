//! The arguments with which the messages of a batch are put, taken from Python before any lock:
//! each callable is called and each iterator read once, and what they raise reaches the caller as
//! it is.

use interlock_core::key::KeyRef;
use interlock_core::queue::calls::coalesce::Coalesce;
use interlock_core::queue::scheduler::Put;
use interlock_core::queue::types::Behind;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::fast;
use crate::queue::arguments::{
    behind, called, check_keys, dedup, delay, group, limit_names, name_of, priority, size, times,
    with_dedup, CoalesceArguments, Times,
};
use crate::queue::Queue;
use crate::runtime::convert;
use crate::runtime::convert::{flag, iterated, Argument, KeyBytes, Keys, Of};
use crate::runtime::errors::wrong_type;
use crate::runtime::exit;

const CALL: &str = "put_many()";

/// The arguments of a batch, as they came; `None` is as if not given.
pub struct BatchArguments<'a, 'py> {
    /// A value for all, or a callable of each payload.
    pub keys: Option<&'a Bound<'py, PyAny>>,
    pub shared: Option<&'a Bound<'py, PyAny>>,
    /// A value for each payload, in their order.
    pub each_keys: Option<&'a Bound<'py, PyAny>>,
    pub each_shared: Option<&'a Bound<'py, PyAny>>,
    pub priority: Option<&'a Bound<'py, PyAny>>,
    pub delay: Option<&'a Bound<'py, PyAny>>,
    /// A callable of each payload.
    pub dedup: Option<&'a Bound<'py, PyAny>>,
    pub quiet: Option<&'a Bound<'py, PyAny>>,
    /// Names for all, or a callable of each payload.
    pub limit: Option<&'a Bound<'py, PyAny>>,
    /// A group for all, or a callable of each payload.
    pub group: Option<&'a Bound<'py, PyAny>>,
    /// A name for all, or a callable of each payload; and the times of all.
    pub coalesce: CoalesceArguments<'a, 'py>,
    /// A word for all, or a callable of each payload.
    pub behind: Option<&'a Bound<'py, PyAny>>,
}

/// The same arguments, checked; it owns the objects from which keys are borrowed.
pub struct NamedBatch<'py> {
    count: usize,
    keys: NamedKeys<'py>,
    shared: NamedKeys<'py>,
    priority: i8,
    delay: u64,
    dedup: Option<Vec<Option<Bound<'py, PyString>>>>,
    sizes: Option<Vec<u64>>,
    quiet: bool,
    /// The limit names of all, or of each.
    limit: Vec<Vec<u8>>,
    /// The group of all, or of each.
    group: Vec<Vec<u8>>,
    /// The coalescing name of each, or of none.
    coalesce: Vec<Option<KeyBytes<'py>>>,
    times: Times,
    /// The value of all, or of each.
    behind: Vec<Option<Behind>>,
}

/// An argument once its callable was called.
enum Values<'py> {
    Unsaid,
    Same(Bound<'py, PyAny>),
    /// The values that a callable gave for each payload.
    Called(Vec<Option<Bound<'py, PyAny>>>),
    /// The values that were listed for each.
    Listed(Vec<Option<Bound<'py, PyAny>>>),
}

/// The keys of all messages.
enum NamedKeys<'py> {
    Same(Keys<'py>),
    Each(Vec<Keys<'py>>),
    /// Keys of the usual types, borrowed in place; an entry is `None` if an item has no keys.
    Usual(Vec<Option<Bound<'py, PyAny>>>),
}

impl<'py> Values<'py> {
    fn new(
        value: Option<&Bound<'py, PyAny>>,
        each: Option<&Bound<'py, PyAny>>,
        payloads: &[Bound<'py, PyAny>],
        name: &str,
    ) -> PyResult<Self> {
        match (value, each) {
            (Some(_), Some(_)) => Err(PyTypeError::new_err(format!(
                "{CALL}: {name} and each_{name} are both given; allowed: one of them"
            ))),
            (None, Some(each)) => {
                listed(each, payloads.len(), &format!("{CALL}: each_{name}")).map(Values::Listed)
            }
            (Some(value), None) if value.is_callable() => {
                let call = |payload| called(value, payload).map(said);
                payloads.iter().map(call).collect::<PyResult<_>>().map(Values::Called)
            }
            (Some(value), None) => Ok(Values::Same(value.clone())),
            (None, None) => Ok(Values::Unsaid),
        }
    }

    /// Keys as they are put with; `of` is called where none are given.
    fn named(
        self,
        of: Option<&Py<PyAny>>,
        payloads: &[Bound<'py, PyAny>],
        name: &str,
    ) -> PyResult<NamedKeys<'py>> {
        let argument = |of: Of| Argument { call: CALL, name, of };
        let unsaid = |i: usize| match of {
            None => Ok(Keys::new()),
            Some(of) => {
                let payload = &payloads[i];
                convert::keys(&called(of.bind(payload.py()), payload)?, argument(Of::Item(i)))
            }
        };
        let listing = format!("each_{name}");
        let each: PyResult<Vec<Keys<'py>>> = match &self {
            Values::Same(value) => {
                return convert::keys(value, argument(Of::Call)).map(NamedKeys::Same)
            }
            Values::Unsaid if of.is_none() => return Ok(NamedKeys::Same(Keys::new())),
            Values::Unsaid => (0..payloads.len()).map(unsaid).collect(),
            Values::Called(values) | Values::Listed(values) => {
                let listed = matches!(self, Values::Listed(_));
                let one = |(i, value): (usize, &Option<Bound<'py, PyAny>>)| match value {
                    None => unsaid(i),
                    Some(value) if listed => {
                        convert::keys(value, Argument { name: &listing, ..argument(Of::Each(i)) })
                    }
                    Some(value) => convert::keys(value, argument(Of::Item(i))),
                };
                values.iter().enumerate().map(one).collect()
            }
        };
        each.map(NamedKeys::Each)
    }

    /// All of them, where `convert::quick_each` takes each.
    fn usual(self) -> Result<NamedKeys<'py>, Self> {
        let (Values::Called(values) | Values::Listed(values)) = &self else { return Err(self) };
        let usual = |value: &Bound<'py, PyAny>| convert::quick_each(value.as_borrowed(), |_| ());
        if !values.iter().flatten().all(usual) {
            return Err(self);
        }
        match self {
            Values::Called(values) | Values::Listed(values) => Ok(NamedKeys::Usual(values)),
            _ => Err(self),
        }
    }
}

/// A value that may be `None`, which says nothing.
fn said(value: Bound<'_, PyAny>) -> Option<Bound<'_, PyAny>> {
    (!value.is_none()).then_some(value)
}

/// One value for each of `count` payloads; of a longer iterable, one more is read to notice it.
fn listed<'py>(
    each: &Bound<'py, PyAny>,
    count: usize,
    name: &str,
) -> PyResult<Vec<Option<Bound<'py, PyAny>>>> {
    const ALLOWED: &str = "an iterable of the keys of each item, one (or None) for each";
    // A key is iterable, too, and so is a buffer, and a callable has another place.
    let one = each.is_instance_of::<PyString>() || each.is_instance_of::<PyBytes>();
    if one || each.is_callable() || convert::gives_bytes(each) {
        return Err(wrong_type(name, each, ALLOWED));
    }
    let mut values = Vec::with_capacity(count);
    for value in iterated(each, name, ALLOWED)? {
        if values.len() == count {
            let text = format!("{name} gives more than {count}; allowed: as many as items");
            return Err(PyValueError::new_err(text));
        }
        values.push(said(value?));
    }
    if values.len() < count {
        let text = format!("{name} gives {}; allowed: {count}, as many as items", values.len());
        return Err(PyValueError::new_err(text));
    }
    Ok(values)
}

impl NamedKeys<'_> {
    fn count(&self, i: usize) -> usize {
        match self {
            NamedKeys::Same(keys) => keys.len(),
            NamedKeys::Each(each) => each[i].len(),
            // Their number is small enough.
            NamedKeys::Usual(_) => 0,
        }
    }

    /// All keys, and where those of each message end.
    fn refs(&self, count: usize) -> (Vec<KeyRef<'_>>, Vec<usize>) {
        let (mut refs, mut ends) = (Vec::with_capacity(count), Vec::with_capacity(count));
        match self {
            NamedKeys::Same(keys) => refs.extend(convert::refs(keys)),
            NamedKeys::Each(each) => {
                for keys in each {
                    refs.extend(keys.iter().map(|key| KeyRef::new(key.as_bytes())));
                    ends.push(refs.len());
                }
            }
            NamedKeys::Usual(values) => {
                for value in values {
                    if let Some(value) = value {
                        convert::quick_each(value.as_borrowed(), |key| refs.push(key));
                    }
                    ends.push(refs.len());
                }
            }
        }
        (refs, ends)
    }
}

impl<'py> NamedBatch<'py> {
    pub fn new(
        queue: &Queue,
        payloads: &[Bound<'py, PyAny>],
        put: &BatchArguments<'_, 'py>,
    ) -> PyResult<Self> {
        exit::prepare();
        if let Some(dedup) = put.dedup.filter(|dedup| !dedup.is_callable()) {
            let name = format!("{CALL}: dedup");
            return Err(wrong_type(&name, dedup, "a callable of the payload"));
        }
        let mut named = NamedBatch {
            count: payloads.len(),
            keys: NamedKeys::Same(Keys::new()),
            shared: NamedKeys::Same(Keys::new()),
            priority: priority(put.priority, CALL)?,
            delay: delay(put.delay, CALL)?,
            dedup: None,
            sizes: None,
            quiet: flag(put.quiet, CALL, "quiet")?,
            limit: Vec::new(),
            group: Vec::new(),
            coalesce: Vec::new(),
            times: times(&put.coalesce, put.delay, CALL)?,
            behind: Vec::new(),
        };
        let mut keys = Values::new(put.keys, put.each_keys, payloads, "keys")?;
        if queue.plain && put.names_only_keys() {
            match keys.usual() {
                Ok(usual) => return Ok(NamedBatch { keys: usual, ..named }),
                Err(given) => keys = given,
            }
        }
        let shared = Values::new(put.shared, put.each_shared, payloads, "shared")?;
        named.keys = keys.named(queue.keys_of.as_ref(), payloads, "keys")?;
        named.shared = shared.named(queue.shared_of.as_ref(), payloads, "shared")?;
        named.coalesce = coalescing_names(put, payloads)?;
        if named.times.debounce > 0 && named.coalesce.iter().any(Option::is_none) {
            return Err(PyValueError::new_err(format!("{CALL}: debounce without coalesce")));
        }
        for i in 0..payloads.len() {
            let name = named.coalesce.get(i).is_some_and(Option::is_some);
            check_keys(named.keys.count(i) + named.shared.count(i) + usize::from(name), CALL)?;
        }
        if let Some(callable) = put.dedup {
            let name = |i: usize| format!("{CALL}: dedup(items[{i}])");
            let one = |(i, payload): (usize, &Bound<'py, PyAny>)| {
                dedup(said(called(callable, payload)?).as_ref(), || name(i))
            };
            named.dedup = Some(payloads.iter().enumerate().map(one).collect::<PyResult<_>>()?);
        }
        named.limit = texts(put.limit, "limit", payloads, |value, name| limit_names(value, name))?;
        named.group = texts(put.group, "group", payloads, |value, name| group(value, name))?;
        named.behind = match put.behind {
            Some(callable) if callable.is_callable() => {
                let name = |i: usize| format!("{CALL}: behind(items[{i}])");
                let one = |(i, payload): (usize, &Bound<'py, PyAny>)| {
                    behind(said(called(callable, payload)?).as_ref(), || name(i))
                };
                payloads.iter().enumerate().map(one).collect::<PyResult<_>>()?
            }
            same => vec![behind(same, || format!("{CALL}: behind"))?],
        };
        if queue.bounds.1 > 0 {
            let one = |(i, payload): (usize, &Bound<'py, PyAny>)| {
                size(queue, payload, || format!("{CALL}: items[{i}]"))
            };
            named.sizes = Some(payloads.iter().enumerate().map(one).collect::<PyResult<_>>()?);
        }
        Ok(named)
    }

    /// Calls `call` with the puts.
    pub fn with_puts<R>(&self, call: impl FnOnce(&[Put<'_>]) -> R) -> R {
        let (keys, key_ends) = self.keys.refs(self.count);
        let (shared, shared_ends) = self.shared.refs(self.count);
        let names: Vec<Option<Coalesce<'_>>> = self
            .coalesce
            .iter()
            .map(|name| name.as_ref().map(|name| self.times.of(name.as_bytes())))
            .collect();
        let put = |i: usize| Put {
            keys: part(&keys, &key_ends, i),
            shared: part(&shared, &shared_ends, i),
            priority: self.priority,
            delay: self.delay,
            dedup: self.dedup.as_ref().and_then(|each| each[i].as_ref()?.to_str().ok()),
            size: self.sizes.as_ref().map_or(0, |sizes| sizes[i]),
            quiet: self.quiet,
            limit: text_of(&self.limit, i),
            group: text_of(&self.group, i),
            behind: match self.behind[..] {
                [] => None,
                [same] => same,
                ref each => each[i],
            },
            coalesce: names.get(i).and_then(Option::as_ref),
            ..Put::default()
        };
        call(&(0..self.count).map(put).collect::<Vec<_>>())
    }
}

/// The text of an argument for all messages, or of each if it is a callable of the payload.
fn texts<'py>(
    given: Option<&Bound<'py, PyAny>>,
    argument: &str,
    payloads: &[Bound<'py, PyAny>],
    read: impl Fn(Option<&Bound<'py, PyAny>>, &dyn Fn() -> String) -> PyResult<Vec<u8>>,
) -> PyResult<Vec<Vec<u8>>> {
    let Some(callable) = given.filter(|given| given.is_callable()) else {
        return Ok(vec![read(given, &|| format!("{CALL}: {argument}"))?]);
    };
    let one = |(i, payload): (usize, &Bound<'py, PyAny>)| {
        let name = || format!("{CALL}: {argument}(items[{i}])");
        read(said(called(callable, payload)?).as_ref(), &name)
    };
    payloads.iter().enumerate().map(one).collect()
}

/// The coalescing name of each message; empty: none was given.
fn coalescing_names<'py>(
    put: &BatchArguments<'_, 'py>,
    payloads: &[Bound<'py, PyAny>],
) -> PyResult<Vec<Option<KeyBytes<'py>>>> {
    let Some(value) = put.coalesce.coalesce else { return Ok(Vec::new()) };
    if put.dedup.is_some() {
        return Err(with_dedup(CALL));
    }
    let one = |(i, payload): (usize, &Bound<'py, PyAny>)| match value.is_callable() {
        false => name_of(value, || format!("{CALL}: coalesce")).map(Some),
        true => {
            let name = || format!("{CALL}: coalesce(items[{i}])");
            said(called(value, payload)?).map(|value| name_of(&value, name)).transpose()
        }
    };
    payloads.iter().enumerate().map(one).collect()
}

/// The text of one message.
fn text_of(texts: &[Vec<u8>], i: usize) -> &[u8] {
    match texts {
        [] => &[],
        [same] => same,
        each => &each[i],
    }
}

/// Returns a message's part of all keys: all, if there are no ends.
fn part<'a>(keys: &'a [KeyRef<'a>], ends: &[usize], i: usize) -> &'a [KeyRef<'a>] {
    match ends.get(i) {
        None => keys,
        Some(&end) => &keys[i.checked_sub(1).map_or(0, |before| ends[before])..end],
    }
}

impl BatchArguments<'_, '_> {
    /// Returns whether no argument except keys was given.
    pub fn names_only_keys(&self) -> bool {
        let CoalesceArguments { coalesce, debounce, longest } = self.coalesce;
        let others = [
            self.shared,
            self.each_shared,
            self.dedup,
            self.quiet,
            self.limit,
            self.group,
            self.behind,
            coalesce,
            debounce,
            longest,
        ];
        others.iter().all(Option::is_none)
            && fast::is_zero(self.priority)
            && fast::is_zero(self.delay)
    }
}
