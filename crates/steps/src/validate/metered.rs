//! A JSON value that counts how often the validator looks at it. When the budget is used up, its
//! containers look empty, so that a validation ends within a few more looks: the library has no
//! other way to be stopped.
//!
//! What each look runs is inlined always: this crate is optimised for size, and calls would make a
//! validation 6 % dearer.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object, SerdeJson};
use serde_json::{Map, Value};

/// Bytes of a text that cost as much as one look.
const BYTES_A_STEP: usize = 64;
/// About what an error takes, besides the path that leads to it.
const ERROR_BYTES: usize = 2048;
/// The most bytes that the errors of a validation take, those of unseen branches included.
const ERRORS_MEMORY: usize = 16 << 20;
/// How many steps pass between two looks at the clock and the flag.
const CHECK_EVERY: u64 = 256;

/// What errors hold that were found after the budget was used up: they may be wrong.
static UNKNOWN: Value = Value::Null;

/// The steps, the time and the memory that a validation may take.
#[derive(Debug)]
pub(super) struct Budget<'s> {
    steps_max: u64,
    left: Cell<u64>,
    /// Steps until the clock and the flag are looked at again.
    until_check: Cell<u64>,
    is_exhausted: Cell<bool>,
    /// Whether time is what was used up, or nobody waits any more.
    is_late: Cell<bool>,
    time: Duration,
    /// When the time is over, once the clock has been looked at.
    until: Cell<Option<Instant>>,
    /// Set when nobody waits for the result any more.
    stop: Option<&'s AtomicBool>,
    /// Whether each text may cost the time of a pattern that backtracks.
    has_slow_patterns: bool,
    /// Bytes that errors may still take.
    memory_left: Cell<usize>,
}

impl<'s> Budget<'s> {
    /// A budget of this many steps, and of this time from its first look at the clock.
    pub fn new(steps: u64, time: Duration, has_slow_patterns: bool) -> Self {
        Self {
            steps_max: steps,
            left: Cell::new(steps),
            until_check: Cell::new(CHECK_EVERY),
            is_exhausted: Cell::new(false),
            is_late: Cell::new(false),
            time,
            until: Cell::new(None),
            stop: None,
            has_slow_patterns,
            memory_left: Cell::new(ERRORS_MEMORY),
        }
    }

    /// The same, used up when this flag is set.
    pub fn unless(mut self, stop: &'s AtomicBool) -> Self {
        self.stop = Some(stop);
        self
    }

    /// A budget to find errors with, within the time of this one. `None` when it would be larger
    /// than this one was.
    pub fn for_errors(&self, steps: u64) -> Option<Self> {
        let budget = Self::new(steps, self.time, self.has_slow_patterns);
        budget.until.set(self.until.get());
        (steps <= self.steps_max).then_some(Self {
            stop: self.stop,
            ..budget
        })
    }

    /// Whether it is used up. Nothing that was found since then counts.
    pub fn is_exhausted(&self) -> bool {
        self.is_exhausted.get()
    }

    /// Whether time was used up, so that another run could find more.
    pub fn is_late(&self) -> bool {
        self.is_late.get()
    }

    /// When the clock was looked at first; not at all by most validations.
    pub fn began(&self) -> Option<Instant> {
        self.until.get()?.checked_sub(self.time)
    }

    /// How many steps are left.
    pub fn steps_left(&self) -> u64 {
        self.left.get()
    }

    /// Takes away what an error costs that has a path of this length.
    fn take_error(&self, path: usize) -> bool {
        // The path stands in it twice: in the body, and in the schema.
        let bytes = ERROR_BYTES.saturating_add(path.saturating_mul(2));
        match self.memory_left.get().checked_sub(bytes) {
            Some(left) if self.take(1) => {
                self.memory_left.set(left);
                true
            }
            _ => self.exhaust(),
        }
    }

    /// Takes steps away. False when there are not so many.
    #[inline(always)]
    fn take(&self, steps: u64) -> bool {
        let Some(left) = self.left.get().checked_sub(steps) else {
            return self.exhaust();
        };
        self.left.set(left);
        match self.until_check.get().checked_sub(steps) {
            Some(until) => {
                self.until_check.set(until);
                true
            }
            None => self.check(),
        }
    }

    /// Takes away what a text costs that something is compared with.
    #[inline(always)]
    fn take_text(&self, text: &str) -> bool {
        let steps = 1 + (text.len() / BYTES_A_STEP) as u64;
        self.take(steps) && (!self.has_slow_patterns || self.check())
    }

    #[cold]
    fn exhaust(&self) -> bool {
        self.left.set(0);
        self.is_exhausted.set(true);
        false
    }

    #[cold]
    fn check(&self) -> bool {
        self.until_check.set(CHECK_EVERY);
        let now = Instant::now();
        let until = self.until.get().unwrap_or(now + self.time);
        self.until.set(Some(until));
        let is_abandoned = self.stop.is_some_and(|it| it.load(Ordering::Relaxed));
        if is_abandoned || now >= until {
            self.is_late.set(true);
            return self.exhaust();
        }
        true
    }
}

/// The representation of JSON that the validator is compiled for.
pub(super) struct MeteredJson;

/// A value and the budget that looks at it are taken from.
#[derive(Clone, Copy)]
pub(super) struct Metered<'a> {
    value: &'a Value,
    /// Absent for names of members, which are paid for with their members.
    budget: Option<&'a Budget<'a>>,
    /// About how many bytes the path to the value has.
    path: usize,
}

impl<'a> Metered<'a> {
    pub fn new(value: &'a Value, budget: &'a Budget<'a>) -> Self {
        Self {
            value,
            budget: Some(budget),
            path: 0,
        }
    }

    #[inline(always)]
    fn take(&self, steps: u64) -> bool {
        self.budget.is_none_or(|budget| budget.take(steps))
    }

    /// A value in this one, behind a name or number of this length.
    #[inline(always)]
    fn within(&self, value: &'a Value, length: usize) -> Self {
        Self {
            value,
            budget: self.budget,
            path: self.path + 1 + length,
        }
    }
}

/// Whether an error was found while the budget lasted.
pub(super) fn is_certain(instance: &Value) -> bool {
    !std::ptr::eq(instance, &UNKNOWN)
}

impl Json for MeteredJson {
    type Node<'a> = Metered<'a>;
    type PreparedKey = String;
    type StringBuffer = Value;

    const KEYS_PER_LOOKUP: usize = SerdeJson::KEYS_PER_LOOKUP;

    fn prepare_key(key: &str) -> String {
        SerdeJson::prepare_key(key)
    }

    fn with_string_node<T>(buffer: &mut Value, text: &str, f: impl FnOnce(Metered<'_>) -> T) -> T {
        SerdeJson::with_string_node(buffer, text, |value| {
            f(Metered {
                value,
                budget: None,
                path: 0,
            })
        })
    }
}

impl<'a> Node<'a, MeteredJson> for Metered<'a> {
    type Object = Members<'a>;
    type Array = Elements<'a>;
    type Number = &'a serde_json::Number;

    #[inline(always)]
    fn as_object(&self) -> Option<Members<'a>> {
        let members = self.value.as_object()?;
        self.take(1).then_some(Members {
            members,
            around: *self,
        })
    }

    #[inline(always)]
    fn as_array(&self) -> Option<Elements<'a>> {
        let elements = self.value.as_array()?;
        self.take(1).then_some(Elements {
            elements,
            around: *self,
        })
    }

    #[inline(always)]
    fn as_string(&self) -> Option<Cow<'a, str>> {
        let text = self.value.as_str()?;
        let is_paid = self.budget.is_none_or(|budget| budget.take_text(text));
        is_paid.then_some(Cow::Borrowed(text))
    }

    fn as_number(&self) -> Option<&'a serde_json::Number> {
        self.value.as_number()
    }

    fn as_boolean(&self) -> Option<bool> {
        self.value.as_bool()
    }

    fn is_null(&self) -> bool {
        self.value.is_null()
    }

    #[inline(always)]
    fn json_type(&self) -> JsonType {
        // Every visit to a value begins with this or an accessor above.
        self.take(1);
        <&Value as Node<'_, SerdeJson>>::json_type(&self.value)
    }

    fn string_length(&self) -> Option<u64> {
        let is_paid = self.take(1 + self.value.as_str()?.len() as u64 / 256);
        is_paid
            .then(|| <&Value as Node<'_, SerdeJson>>::string_length(&self.value))
            .flatten()
    }

    fn equals_value(&self, expected: &Value) -> bool {
        self.take(1) && <&Value as Node<'_, SerdeJson>>::equals_value(&self.value, expected)
    }

    fn to_value(&self) -> Cow<'a, Value> {
        // Only errors ask for it.
        let is_paid = self
            .budget
            .is_none_or(|budget| budget.take_error(self.path));
        Cow::Borrowed(if is_paid { self.value } else { &UNKNOWN })
    }

    fn identity(&self) -> Option<NodeIdentity> {
        <&Value as Node<'_, SerdeJson>>::identity(&self.value)
    }
}

/// The members of an object.
pub(super) struct Members<'a> {
    members: &'a Map<String, Value>,
    around: Metered<'a>,
}

/// The members of an object, one after the other, while the budget lasts.
pub(super) struct MembersIter<'a> {
    members: serde_json::map::Iter<'a>,
    around: Metered<'a>,
}

impl<'a> Object<'a, MeteredJson> for Members<'a> {
    type Node = Metered<'a>;
    type MemberName = &'a str;
    type MembersIter = MembersIter<'a>;

    fn len(&self) -> usize {
        self.members.len()
    }

    #[inline(always)]
    fn get(&self, key: &String) -> Option<Metered<'a>> {
        if !self.around.take(1) {
            return None;
        }
        let value = self.members.get(key)?;
        Some(self.around.within(value, key.len()))
    }

    fn members(&self) -> MembersIter<'a> {
        MembersIter {
            members: self.members.iter(),
            around: self.around,
        }
    }
}

impl<'a> Iterator for MembersIter<'a> {
    type Item = (&'a str, Metered<'a>);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.members.next()?;
        let budget = self.around.budget;
        let is_paid = budget.is_none_or(|budget| budget.take_text(name));
        is_paid.then(|| (name.as_str(), self.around.within(value, name.len())))
    }
}

/// The elements of an array.
pub(super) struct Elements<'a> {
    elements: &'a [Value],
    around: Metered<'a>,
}

/// The elements of an array, one after the other, while the budget lasts.
pub(super) struct ElementsIter<'a> {
    elements: std::slice::Iter<'a, Value>,
    around: Metered<'a>,
}

impl<'a> Array<'a, MeteredJson> for Elements<'a> {
    type Node = Metered<'a>;
    type ElementsIter = ElementsIter<'a>;

    fn len(&self) -> usize {
        self.elements.len()
    }

    fn elements(&self) -> ElementsIter<'a> {
        ElementsIter {
            elements: self.elements.iter(),
            around: self.around,
        }
    }

    fn is_unique(&self) -> bool {
        // Elements are compared with all that is in them.
        if let Some(budget) = self.around.budget {
            let mut left = budget.steps_left();
            let whole = self.elements.iter().all(|it| weigh(it, &mut left));
            if !whole || !budget.take(budget.steps_left() - left) {
                return !budget.exhaust();
            }
        }
        Array::<SerdeJson>::is_unique(&self.elements)
    }
}

impl<'a> Iterator for ElementsIter<'a> {
    type Item = Metered<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let value = self.elements.next()?;
        self.around.take(1).then(|| self.around.within(value, 6))
    }
}

/// Takes the steps away that a comparison with all of a value costs. False when there are too few.
fn weigh(value: &Value, left: &mut u64) -> bool {
    let steps = 1 + match value {
        Value::String(text) => (text.len() / BYTES_A_STEP) as u64,
        _ => 0,
    };
    let Some(after) = left.checked_sub(steps) else {
        return false;
    };
    *left = after;
    match value {
        Value::Array(items) => items.iter().all(|it| weigh(it, left)),
        Value::Object(members) => members.values().all(|it| weigh(it, left)),
        _ => true,
    }
}
