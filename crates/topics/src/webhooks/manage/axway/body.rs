//! What requests say of a subscription, in Axway's members.

use message::{Fault, Request};
use serde_json::{Map, Value};

use crate::profile::axway;
use crate::view::Mode;
use crate::webhooks::delivery::Delivery;
use crate::webhooks::manage::Managed;
use crate::webhooks::manage::body::{HEADERS, Members, OAUTH2, PATCH_TYPES, check_type};
use crate::webhooks::members::{check_rest, object, take_text};
use crate::webhooks::subscriptions::record::ViewText;

/// Whether a subscription gets events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SubscriptionStatus {
    Active,
    Suspended,
}

impl SubscriptionStatus {
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Suspended => "suspended",
        }
    }

    fn of_name(name: &str) -> Result<Self, Fault> {
        let all = [Self::Active, Self::Suspended];
        let found = all.into_iter().find(|it| it.name() == name);
        let unknown = || Fault::invalid("`subscriptionStatus` is `active` or `suspended`");
        found.ok_or_else(unknown)
    }
}

/// Our members, and what Axway calls them.
const NAMES: [(&str, &str); 3] = [
    ("url", "webhookUrl"),
    ("headers", "webhookHeaders"),
    ("mode", "subscriptionMode"),
];

/// A refusal that was written for our own interface, with Axway's names of the members.
fn renamed(mut fault: Fault) -> Fault {
    let mut detail = fault.detail.into_owned();
    for (own, other) in NAMES {
        // Alone, or in the path of something within it.
        for end in ['`', '.'] {
            detail = detail.replace(&format!("`{own}{end}"), &format!("`{other}{end}"));
        }
    }
    fault.detail = detail.into();
    fault
}

fn without_url() -> Fault {
    Fault::invalid("a subscription has a `webhookUrl`")
}

/// What a request says of a subscription. Members that it does not name are absent.
pub(super) struct Change {
    url: Option<String>,
    headers: Option<Value>,
    mode: Option<Mode>,
    pub status: Option<SubscriptionStatus>,
}

impl Change {
    /// Takes the members out that creations and changes have. `usual` is the mode of those that say
    /// none.
    fn take(given: &mut Map<String, Value>, usual: Mode, managed: &Managed) -> Result<Self, Fault> {
        if given
            .remove("authorization")
            .is_some_and(|it| !it.is_null())
        {
            return Err(renamed(Fault::invalid(OAUTH2)));
        }
        let says_mode = given.contains_key("subscriptionMode");
        let mode = take_text(given, "subscriptionMode")?;
        let mode = mode.map(|name| allowed_mode(&name, managed)).transpose()?;
        let says_url = given.contains_key("webhookUrl");
        let url = take_text(given, "webhookUrl")?;
        if says_url && url.is_none() {
            return Err(without_url());
        }
        Ok(Self {
            url,
            headers: given.remove("webhookHeaders"),
            mode: mode.or(says_mode.then_some(usual)),
            status: None,
        })
    }

    /// The members of a subscription after this change.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn apply(self, members: Members, managed: &Managed) -> Result<Members, Fault> {
        self.applied(members, managed).map_err(renamed)
    }

    fn applied(self, before: Members, managed: &Managed) -> Result<Members, Fault> {
        let mut members = before.clone();
        if let Some(url) = self.url {
            members.url = url;
        }
        if let Some(mode) = self.mode {
            members.view.mode = mode;
        }
        members.apply((Map::new(), self.headers), managed)?;
        members.check(managed)?;
        members.check_move(&before.url, HEADERS[1])?;
        Ok(members)
    }
}

/// The mode of this name, if subscriptions may have it.
fn allowed_mode(name: &str, managed: &Managed) -> Result<Mode, Fault> {
    let mode = axway::mode(name).filter(|it| managed.modes.contains(it));
    mode.ok_or_else(|| {
        let modes = managed.modes.iter();
        let names: Vec<&str> = modes.map(|it| axway::mode_name(*it)).collect();
        let detail = format!("`subscriptionMode` is one of: {}", names.join(", "));
        Fault::invalid(detail)
    })
}

/// Reads the members of a new subscription. `usual` is the mode without a wish.
///
/// # Errors
/// What is wrong with the request.
pub(super) fn created(request: &Request, usual: Mode, managed: &Managed) -> Result<Members, Fault> {
    check_type(request, &["application/json"])?;
    let mut given = object(request.body.as_bytes())?;
    let change = Change::take(&mut given, usual, managed)?;
    check_rest(&given)?;
    let url = change.url.clone().ok_or_else(without_url)?;
    let members = Members {
        url,
        description: None,
        view: ViewText {
            mode: usual,
            filter: None,
            select: None,
            key: None,
            cloudevents: None,
        },
        delivery: Delivery::default(),
        headers: Vec::new(),
    };
    change.apply(members, managed)
}

/// Reads what is to change of a subscription: a merge patch (RFC 7396).
///
/// # Errors
/// What is wrong with the request.
pub(super) fn changed(request: &Request, usual: Mode, managed: &Managed) -> Result<Change, Fault> {
    check_type(request, PATCH_TYPES)?;
    let mut given = object(request.body.as_bytes())?;
    let mut change = Change::take(&mut given, usual, managed)?;
    let status = take_text(&mut given, "subscriptionStatus")?;
    change.status = status
        .map(|it| SubscriptionStatus::of_name(&it))
        .transpose()?;
    check_rest(&given)?;
    Ok(change)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_the_names_that_clients_know() {
        for (own, other) in [
            (
                "a `url` has at most 9 bytes",
                "a `webhookUrl` has at most 9 bytes",
            ),
            (
                "`headers.X-A`: expected a text",
                "`webhookHeaders.X-A`: expected a text",
            ),
            ("`mode` is one of: a", "`subscriptionMode` is one of: a"),
            ("the `urls` of modes", "the `urls` of modes"),
        ] {
            assert_eq!(renamed(Fault::invalid(own)).detail, other);
        }
    }

    #[test]
    fn a_status_is_active_or_suspended() {
        for status in [SubscriptionStatus::Active, SubscriptionStatus::Suspended] {
            assert_eq!(
                SubscriptionStatus::of_name(status.name()).ok(),
                Some(status)
            );
        }
        assert!(SubscriptionStatus::of_name("Active").is_err());
    }
}
