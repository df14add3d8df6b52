//! A document that is being changed: what is not touched stays a part of the text that it came in.

use std::borrow::Cow;

use hashbrown::HashMap;

use super::{At, Kind};

/// So many members are looked at one by one.
const FEW: usize = 16;

/// A value.
#[derive(Clone, Debug)]
pub(super) enum Value<'a> {
    /// As it stands in a document.
    Raw(At<'a>),
    /// A list that has been looked into.
    Array(Vec<Value<'a>>),
    /// An object that has been looked into.
    Object(Members<'a>),
}

/// The members of an object. A name is what is between the quotes of its text.
#[derive(Clone, Debug, Default)]
pub(super) struct Members<'a> {
    /// What has been removed leaves a gap.
    entries: Vec<Option<(Cow<'a, [u8]>, Value<'a>)>>,
    /// Where the names are, once there are many.
    places: HashMap<Cow<'a, [u8]>, usize>,
    count: usize,
}

impl<'a> Members<'a> {
    fn of(object: At<'a>) -> Self {
        let members = object.members();
        let entry = |(name, value)| Some((Cow::Borrowed(name), Value::Raw(value)));
        let entries: Vec<_> = members.map(entry).collect();
        let mut members = Self {
            count: entries.len(),
            entries,
            places: HashMap::new(),
        };
        if members.entries.len() > FEW {
            members.index();
        }
        members
    }

    /// Notes where the names are.
    fn index(&mut self) {
        let names = self.entries.iter().enumerate();
        let names = names.filter_map(|(at, entry)| Some((entry.as_ref()?.0.clone(), at)));
        self.places = HashMap::with_capacity(2 * self.entries.len());
        self.places.extend(names);
    }

    fn push(&mut self, name: Cow<'a, [u8]>, value: Value<'a>) {
        let at = self.entries.len();
        if at == FEW {
            self.index();
        }
        if at >= FEW {
            self.places.insert(name.clone(), at);
        }
        self.entries.push(Some((name, value)));
        self.count += 1;
    }

    fn place(&self, name: &[u8]) -> Option<usize> {
        if self.entries.len() > FEW {
            return self.places.get(name).copied();
        }
        let is_it = |it: &Option<(Cow<'_, [u8]>, _)>| it.as_ref().is_some_and(|it| *it.0 == *name);
        self.entries.iter().position(is_it)
    }

    pub fn get(&self, name: &[u8]) -> Option<&Value<'a>> {
        let entry = self.entries.get(self.place(name)?)?;
        entry.as_ref().map(|it| &it.1)
    }

    pub fn get_mut(&mut self, name: &[u8]) -> Option<&mut Value<'a>> {
        let place = self.place(name)?;
        let entry = self.entries.get_mut(place)?;
        entry.as_mut().map(|it| &mut it.1)
    }

    /// Makes it the value of this name.
    pub fn set(&mut self, name: Cow<'a, [u8]>, value: Value<'a>) {
        match self.get_mut(&name) {
            Some(place) => *place = value,
            None => self.push(name, value),
        }
    }

    pub fn remove(&mut self, name: &[u8]) -> Option<Value<'a>> {
        let place = self.place(name)?;
        self.places.remove(name);
        let (_, value) = self.entries.get_mut(place)?.take()?;
        self.count -= 1;
        Some(value)
    }

    fn iter(&self) -> impl Iterator<Item = &(Cow<'a, [u8]>, Value<'a>)> {
        self.entries.iter().flatten()
    }

    /// Whether these are the names of an object, in its order.
    fn has_names_of(&self, object: At<'_>) -> bool {
        let (names, others) = (self.iter().map(|it| &*it.0), object.members());
        names.eq(others.map(|it| it.0))
    }
}

impl<'a> Value<'a> {
    /// Looks into a list or an object; anything else stays.
    pub fn open(&mut self) {
        let Self::Raw(at) = self else {
            return;
        };
        match at.kind() {
            Kind::Array => *self = Self::Array(at.items().map(Self::Raw).collect()),
            Kind::Object => *self = Self::Object(Members::of(*at)),
            _ => {}
        }
    }

    /// How many values it is made of that a copy has to make again.
    pub fn weight(&self) -> usize {
        1 + match self {
            Self::Raw(_) => 0,
            Self::Array(items) => items.iter().map(Self::weight).sum(),
            Self::Object(members) => members.iter().map(|it| it.1.weight()).sum(),
        }
    }

    /// Appends its compact text, as long as that is not more than `limit` bytes altogether.
    pub fn write(&self, limit: usize, out: &mut Vec<u8>) -> Option<()> {
        match self {
            Self::Raw(at) => out.extend_from_slice(at.text()),
            Self::Array(items) => {
                out.push(b'[');
                for (number, item) in items.iter().enumerate() {
                    if number > 0 {
                        out.push(b',');
                    }
                    item.write(limit, out)?;
                }
                out.push(b']');
            }
            Self::Object(members) => {
                out.push(b'{');
                for (number, (name, value)) in members.iter().enumerate() {
                    if number > 0 {
                        out.push(b',');
                    }
                    out.push(b'"');
                    out.extend_from_slice(name);
                    out.extend_from_slice(b"\":");
                    value.write(limit, out)?;
                }
                out.push(b'}');
            }
        }
        (out.len() <= limit).then_some(())
    }

    /// Whether it says the same as another, whatever the order of members. Scalars are compared by
    /// `alike`.
    pub fn is_same(&self, other: &Value<'_>, alike: fn(At<'_>, At<'_>) -> bool) -> bool {
        if let (Self::Raw(left), Value::Raw(right)) = (self, other) {
            let is_deep = |kind: Kind| matches!(kind, Kind::Array | Kind::Object);
            if left.text() == right.text() {
                return true;
            }
            if !is_deep(left.kind()) || !is_deep(right.kind()) {
                return alike(*left, *right);
            }
        }
        if let (Self::Object(members), Value::Raw(object)) = (self, other)
            && members.has_names_of(*object)
        {
            let mut pairs = members.iter().zip(object.members());
            return pairs.all(|((_, left), (_, right))| left.is_same(&Value::Raw(right), alike));
        }
        let (mut left, mut right) = (Cow::Borrowed(self), Cow::Borrowed(other));
        for side in [&mut left, &mut right] {
            if matches!(**side, Value::Raw(_)) {
                side.to_mut().open();
            }
        }
        match (&*left, &*right) {
            (Value::Array(left), Value::Array(right)) => {
                let pairs = || left.iter().zip(right);
                left.len() == right.len() && pairs().all(|(left, right)| left.is_same(right, alike))
            }
            (Value::Object(left), Value::Object(right)) => {
                left.count == right.count
                    && left.iter().all(|(name, left)| {
                        let right = right.get(name);
                        right.is_some_and(|right| left.is_same(right, alike))
                    })
            }
            _ => false,
        }
    }
}
