//! Lists: which part of one a request wants and in which order, and how it is shown.

use std::cmp::Ordering;

use message::{Fault, Reply};
use serde_json::{Map, Value, json};

use crate::frame;
use crate::profile::axway;
use crate::webhooks::manage::operations::Operations;
use crate::webhooks::manage::show;
use crate::webhooks::members::shortened;
use crate::webhooks::subscriptions::registry::Known;

/// How many items a page has: by default and at most.
const PAGE: usize = 20;
const PAGE_MAX: usize = 1000;

/// How many items are kept at least while a page in order is looked for.
const KEPT_MIN: usize = 64;

/// The parameters of a request, each of which comes once.
pub(super) struct Query {
    /// Those that have not been taken yet.
    left: Vec<(String, String)>,
    /// Those that links to other pages have as well.
    kept: Vec<(&'static str, String)>,
}

impl Query {
    /// Those of a request, without its credentials.
    ///
    /// # Errors
    /// When one comes twice or cannot be read.
    pub fn of(operations: &Operations<'_>) -> Result<Self, Fault> {
        let credentials = || operations.endpoint.access.secret_parameters();
        let is_credential = |name: &str| credentials().any(|it| &**it == name);
        Self::read(operations.request.query.as_deref(), is_credential)
    }

    /// The same of a query in which `is_other` are credentials.
    ///
    /// # Errors
    /// As [`Query::of`].
    pub fn read(query: Option<&str>, is_other: impl Fn(&str) -> bool) -> Result<Self, Fault> {
        let mut left: Vec<(String, String)> = Vec::new();
        let parts = query.unwrap_or_default().split('&');
        for part in parts.filter(|it| !it.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            if is_other(name) {
                continue;
            }
            if left.iter().any(|it| it.0 == name) {
                let name = shortened(name);
                return Err(Fault::invalid(format!("`{name}` comes twice")));
            }
            let value = frame::decoded(value).ok_or_else(|| {
                let name = shortened(name);
                Fault::invalid(format!("`{name}` cannot be read"))
            })?;
            left.push((name.to_owned(), value));
        }
        Ok(Self {
            left,
            kept: Vec::new(),
        })
    }

    /// Takes a parameter that all pages of a list have.
    pub fn take(&mut self, name: &'static str) -> Option<String> {
        let value = self.take_once(name)?;
        self.kept.push((name, value.clone()));
        Some(value)
    }

    fn take_once(&mut self, name: &str) -> Option<String> {
        let at = self.left.iter().position(|it| it.0 == name)?;
        Some(self.left.remove(at).1)
    }

    /// Which page is wanted. All other parameters have been taken.
    ///
    /// # Errors
    /// When there is no such page or parameter.
    pub fn page(mut self) -> Result<Page, Fault> {
        let mut count = |name: &str, usual: usize, most: usize| {
            let value = self.take_once(name);
            let number = value.map_or(Ok(usual), |it| it.parse::<usize>());
            let number = number.ok().filter(|it| (1..=most).contains(it));
            number.ok_or_else(|| match most {
                usize::MAX => Fault::invalid(format!("`{name}` is a number from 1")),
                most => Fault::invalid(format!("`{name}` is a number from 1 to {most}")),
            })
        };
        let number = count("page", 1, usize::MAX)?;
        let size = count("pageSize", PAGE, PAGE_MAX)?;
        match self.left.first() {
            None => Ok(Page {
                number,
                size,
                kept: self.kept,
            }),
            Some((name, _)) if name == "search" => {
                let detail = "`search` is not supported: leave it out";
                Err(Fault::invalid(detail))
            }
            Some((name, _)) => {
                let name = shortened(name);
                Err(Fault::invalid(format!("there is no parameter `{name}`")))
            }
        }
    }
}

/// A page of a list.
pub(super) struct Page {
    /// From 1.
    number: usize,
    pub size: usize,
    kept: Vec<(&'static str, String)>,
}

impl Page {
    /// How many items are on the pages before.
    pub fn skipped(&self) -> usize {
        (self.number - 1).saturating_mul(self.size)
    }

    /// The items of this page among all.
    pub fn cut<T>(&self, all: Vec<T>) -> Vec<T> {
        let items = all.into_iter().skip(self.skipped());
        items.take(self.size).collect()
    }

    /// The reply with this page of a list at this path that has so many items.
    pub fn reply(&self, path: &str, items: Vec<Value>, total: usize) -> Reply {
        let links = self.links(path, total);
        show::reply(200, &json!({ "items": items, "links": links }))
    }

    fn links(&self, path: &str, total: usize) -> Map<String, Value> {
        let last = total.div_ceil(self.size).max(1);
        let next = self.number.checked_add(1).filter(|it| *it <= last);
        let links = [
            ("self", Some(self.number)),
            ("first", Some(1)),
            ("next", next),
            ("last", Some(last)),
        ];
        let links = links.into_iter();
        let links = links.filter_map(|(name, page)| Some((name, page?)));
        links
            .map(|(name, page)| (name.to_owned(), self.link(path, page).into()))
            .collect()
    }

    fn link(&self, path: &str, page: usize) -> String {
        let mut link = format!("{path}?page={page}&pageSize={}", self.size);
        for (name, value) in &self.kept {
            link.push_str(&format!("&{name}="));
            steps::push_encoded(value, &mut link);
        }
        link
    }
}

/// What subscriptions are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SortKey {
    Mode,
    Url,
}

/// The order of a list of subscriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SortOrder {
    key: SortKey,
    is_descending: bool,
}

impl SortOrder {
    /// Takes the order that is wanted out of a query; none is that of the ids.
    ///
    /// # Errors
    /// When it is none.
    pub fn take(mut query: Query) -> Result<(Query, Option<Self>), Fault> {
        let order = query.take("sort").map(|text| Self::read(&text));
        Ok((query, order.transpose()?))
    }

    fn read(text: &str) -> Result<Self, Fault> {
        let (key, direction) = text.split_once(',').unwrap_or((text, "ASC"));
        let key = match key {
            "subscriptionMode" => Some(SortKey::Mode),
            "webhookUrl" => Some(SortKey::Url),
            _ => None,
        };
        let is_descending = match direction {
            "ASC" => Some(false),
            "DESC" => Some(true),
            _ => None,
        };
        let wrong = || {
            Fault::invalid(
                "`sort` is `subscriptionMode` or `webhookUrl`, and `,ASC` or `,DESC` behind it",
            )
        };
        let (key, is_descending) = key.zip(is_descending).ok_or_else(wrong)?;
        Ok(Self { key, is_descending })
    }

    /// A page of subscriptions in this order; those that are equal in the order of their ids.
    pub fn page<'a>(self, all: impl Iterator<Item = &'a Known>, page: &Page) -> Vec<Known> {
        let compare = |one: &&Known, other: &&Known| self.compare(one, other);
        let part = part_in_order(all, compare, (page.skipped(), page.size));
        part.into_iter().cloned().collect()
    }

    fn compare(self, one: &Known, other: &Known) -> Ordering {
        let [one, other] = [one, other].map(|it| &it.subscription);
        let order = match self.key {
            SortKey::Mode => {
                let [one, other] = [one, other].map(|it| axway::mode_name(it.view.mode));
                one.cmp(other)
            }
            SortKey::Url => one.url.cmp(&other.url),
        };
        let order = match self.is_descending {
            true => order.reverse(),
            false => order,
        };
        order.then_with(|| one.id.cmp(&other.id))
    }
}

/// The items behind the first `skipped` ones in an order, at most `most` of them. An operator's
/// list may have a million: no more than twice as many as the part and those before it are kept at
/// a time, and only the part is sorted.
fn part_in_order<T>(
    all: impl Iterator<Item = T>,
    compare: impl Fn(&T, &T) -> Ordering,
    (skipped, most): (usize, usize),
) -> Vec<T> {
    let wanted = skipped.saturating_add(most);
    let kept_max = wanted.saturating_mul(2).max(KEPT_MIN);
    let mut kept: Vec<T> = Vec::new();
    let keep_first = |kept: &mut Vec<T>| {
        if kept.len() > wanted {
            kept.select_nth_unstable_by(wanted, &compare);
            kept.truncate(wanted);
        }
    };
    for one in all {
        kept.push(one);
        if kept.len() >= kept_max {
            keep_first(&mut kept);
        }
    }
    keep_first(&mut kept);
    if skipped >= kept.len() {
        return Vec::new();
    }
    kept.select_nth_unstable_by(skipped, &compare);
    let mut part = kept.split_off(skipped);
    part.sort_unstable_by(&compare);
    part
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use fastrand::Rng;

    use super::*;

    fn query(text: &str) -> Result<Query, String> {
        let read = Query::read(Some(text), |it| it == "key");
        read.map_err(|it| it.detail.into_owned())
    }

    fn page(text: &str) -> Result<Page, String> {
        query(text)?.page().map_err(|it| it.detail.into_owned())
    }

    #[test]
    fn pages_are_counted_from_1_and_bounded() {
        for (text, skipped, size) in [
            ("", 0, 20),
            ("key=secret", 0, 20),
            ("page=3", 40, 20),
            ("page=2&pageSize=1000", 1000, 1000),
        ] {
            let page = page(text).unwrap();
            assert_eq!((page.skipped(), page.size), (skipped, size), "{text}");
        }
        for (text, part) in [
            ("page=0", "`page` is a number from 1"),
            ("page=x", "`page` is a number from 1"),
            ("pageSize=0", "`pageSize` is a number from 1 to 1000"),
            ("pageSize=1001", "`pageSize` is a number from 1 to 1000"),
            ("page=1&page=2", "`page` comes twice"),
            ("page=%", "`page` cannot be read"),
            ("search=a:b", "`search` is not supported"),
            ("limit=3", "there is no parameter `limit`"),
        ] {
            let refusal = page(text).err().unwrap();
            assert!(refusal.starts_with(part), "{text}: {refusal}");
        }
    }

    #[test]
    fn links_lead_to_the_pages_that_there_are_in_the_same_order() {
        let query = query("page=2&sort=webhookUrl%2CDESC&pageSize=2&key=secret").unwrap();
        let (query, order) = SortOrder::take(query).ok().unwrap();
        let expected = SortOrder {
            key: SortKey::Url,
            is_descending: true,
        };
        assert_eq!(order, Some(expected));
        let page = query.page().ok().unwrap();
        let link = |page| json!(format!("/x?page={page}&pageSize=2&sort=webhookUrl%2CDESC"));
        let links = Value::Object(page.links("/x", 5));
        let expected = json!({
            "self": link(2), "first": link(1), "next": link(3), "last": link(3),
        });
        assert_eq!(links, expected);
        let links = Value::Object(page.links("/x", 0));
        let expected = json!({ "self": link(2), "first": link(1), "last": link(1) });
        assert_eq!(links, expected, "nothing follows");
    }

    /// A number, and how many of these there are.
    struct Counted<'a>(u32, &'a Cell<usize>);

    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.1.set(self.1.get() - 1);
        }
    }

    #[test]
    fn a_part_in_order_is_that_of_the_sorted_list_without_a_copy_of_all_of_it() {
        for seed in 0..100 {
            let mut random = Rng::with_seed(seed);
            let count = random.usize(..3000);
            let numbers: Vec<u32> = (0..count).map(|_| random.u32(..500)).collect();
            let (skipped, most) = (random.usize(..300), random.usize(1..100));
            let mut sorted = numbers.clone();
            sorted.sort_unstable();
            let expected: Vec<u32> = sorted.into_iter().skip(skipped).take(most).collect();
            let (live, peak) = (Cell::new(0), Cell::new(0));
            let all = numbers.iter().map(|number| {
                live.set(live.get() + 1);
                peak.set(peak.get().max(live.get()));
                Counted(*number, &live)
            });
            let compare = |one: &Counted, other: &Counted| one.0.cmp(&other.0);
            let part = part_in_order(all, compare, (skipped, most));
            let shown: Vec<u32> = part.iter().map(|it| it.0).collect();
            assert_eq!(shown, expected, "seed {seed}");
            let bound = (2 * (skipped + most)).max(KEPT_MIN);
            assert!(peak.get() <= bound, "seed {seed}: {}", peak.get());
        }
        assert!(part_in_order([1, 2].into_iter(), i32::cmp, (usize::MAX, 1000)).is_empty());
    }

    #[test]
    fn an_order_has_a_key_and_a_direction() {
        assert!(SortOrder::read("subscriptionMode").is_ok());
        for wrong in [
            "",
            "id",
            "webhookUrl,",
            "webhookUrl,desc",
            "webhookUrl,ASC,",
        ] {
            assert!(SortOrder::read(wrong).is_err(), "{wrong}");
        }
    }
}
