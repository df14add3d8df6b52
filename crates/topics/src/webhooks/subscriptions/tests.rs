//! The registry in any order of changes, records with their secrets, and the whole on a disk.

use std::sync::Arc;

use access::sealing_keys::SealingKeys;
use fastrand::Rng;

use super::headers::HeaderLine;
use super::record::{
    Details, ID_PREFIX, NewSubscription, Owner, RequestKey, Secret, Subscription, ViewText, id_of,
    is_subscription_id, uuid_of,
};
use super::registry::{Bounds, Known, Refusal, Registry, Reserved, Start};
use crate::event::EventId;
use crate::profile::Profile;
use crate::view::Mode;
use crate::webhooks::delivery::Delivery;
use crate::webhooks::envelope::CloudEvents;
use crate::webhooks::machine::Order;
use crate::webhooks::state::{EndpointGroup, EndpointKind, EndpointState, Stored};

const TOPIC: &str = "orders";

fn keys(bytes: &[u8]) -> SealingKeys {
    // 32 equal bytes in Base64: 42 equal digits and one that ends them.
    let text = |byte: &u8| match byte {
        0 => format!("{}=", "A".repeat(43)),
        _ => format!("{}8=", "/".repeat(42)),
    };
    let texts: Vec<String> = bytes.iter().map(text).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    SealingKeys::read(&texts).unwrap()
}

fn owner(id: &str) -> Owner {
    Owner {
        way: "keys".into(),
        id: id.into(),
    }
}

fn plain() -> ViewText {
    ViewText {
        mode: Mode::Event,
        filter: None,
        select: None,
        key: None,
        cloudevents: None,
    }
}

fn filtered(filter: &str) -> ViewText {
    ViewText {
        filter: Some(filter.into()),
        ..plain()
    }
}

fn subscription(id: &str, owner: &Arc<Owner>, view: &Arc<ViewText>) -> Subscription {
    let new = NewSubscription {
        id: id.into(),
        owner: Arc::clone(owner),
        view: Arc::clone(view),
        url: "https://a.example/hook".into(),
        now_ms: 1000,
        details: Details::default(),
    };
    let mut subscription = Subscription::new(new);
    subscription.is_verified = true;
    subscription
}

fn known(subscription: Subscription) -> Known {
    let group = EndpointGroup::new((&TOPIC.into(), &Arc::default()), EndpointKind::Webhook);
    let begins = EventId {
        epoch: 1,
        sequence: 0,
    };
    let name = Arc::clone(&subscription.id);
    Known {
        subscription: Arc::new(subscription),
        state: EndpointState::unlisted(&group, name, Stored::at(begins)),
    }
}

const BOUNDS: Bounds = Bounds {
    per_caller: 3,
    total: 5,
    distinct: 2,
};

fn start(
    registry: &mut Registry,
    of: &str,
    view: &ViewText,
    request: Option<(&str, &str)>,
) -> Result<Start, Refusal> {
    let request = request.map(|(key, body)| RequestKey {
        key: key.to_owned(),
        body: body.to_owned(),
    });
    registry.start((&owner(of), view), request.as_ref(), BOUNDS)
}

fn reserve(registry: &mut Registry, of: &str) -> Result<Reserved, Refusal> {
    match start(registry, of, &plain(), None)? {
        Start::Reserved(reserved) => Ok(reserved),
        Start::Before(_) => panic!("no request has come before"),
    }
}

fn made(reserved: &Reserved, id: &str) -> Option<Known> {
    Some(known(subscription(id, &reserved.owner, &reserved.view)))
}

#[test]
fn ids_are_known_by_their_whole_form() {
    let digits = access::webhook_signer::new_id().unwrap();
    let id = format!("{ID_PREFIX}{digits}");
    assert!(is_subscription_id(id.as_bytes()), "{id}");
    let short = &id[..id.len() - 1];
    let long = format!("{id}0");
    let other = format!("{ID_PREFIX}{}", "z".repeat(32));
    let large = format!("{ID_PREFIX}{}", "A".repeat(32));
    for name in ["", "wh_", "wh_shop", &digits, short, &long, &other, &large] {
        assert!(!is_subscription_id(name.as_bytes()), "{name}");
    }
}

#[test]
fn an_id_has_a_uuid_and_a_uuid_its_id() {
    let (id, uuid) = (
        "wh_0123456789abcdef0123456789abcdef",
        "01234567-89ab-cdef-0123-456789abcdef",
    );
    assert_eq!(uuid_of(id), uuid);
    assert_eq!(id_of(uuid).as_deref(), Some(id));
    assert_eq!(id_of(&uuid.to_uppercase()).as_deref(), Some(id));
    for other in [
        "",
        id,
        &uuid[1..],
        &format!("{uuid}0"),
        &uuid.replace('-', "0"),
        &uuid.replace('f', "g"),
        &"ö".repeat(18),
    ] {
        assert_eq!(id_of(other), None, "{other}");
    }
}

#[test]
fn records_from_before_there_were_profiles_are_read() {
    let old = r#"{"owner":{"way":"keys","id":"ann"},"mode":"event","url":"https://a.example/hook",
        "secrets":[],"version":1,"created":1000,"updated":1000,"verified":true}"#;
    let read = Subscription::of_bytes("wh_1", old.as_bytes()).unwrap();
    let (owner, view) = (Arc::new(owner("ann")), Arc::new(plain()));
    let mut one = subscription("wh_1", &owner, &view);
    assert_eq!(read, one);
    let written = String::from_utf8(one.to_bytes().to_vec()).unwrap();
    assert!(!written.contains("profile"), "as before: {written}");
    one.set_details(Details {
        profile: Some(Profile::AxwayStreams),
        ..Details::default()
    });
    let again = Subscription::of_bytes("wh_1", &one.to_bytes()).unwrap();
    assert_eq!(again, one);
    assert!(again.changed(2000).is_of_axway() && !read.is_of_axway());
}

#[test]
fn records_are_read_as_they_are_written_and_secrets_open_with_their_keys_alone() {
    let mut one = subscription("wh_1", &Arc::new(owner("ann")), &Arc::new(filtered(".a")));
    let secret = access::webhook_signer::new_secret().unwrap();
    let old = keys(&[0]);
    one.add_secret((TOPIC, &secret), (1000, 0), &old).unwrap();
    let bytes = one.to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    assert!(!text.contains(&secret["whsec_".len()..]), "{text}");
    let again = Subscription::of_bytes("wh_1", &bytes).unwrap();
    assert_eq!(again, one);
    assert_eq!(again.signer(TOPIC, 1000, &old).unwrap().1, [&*secret]);
    let elsewhere = again.signer("other", 1000, &old).unwrap_err();
    assert!(elsewhere.contains("damaged"), "{elsewhere}");
    let other = Subscription::of_bytes("wh_2", &bytes).unwrap();
    assert!(other.signer(TOPIC, 1000, &old).is_err(), "of another one");
    let unknown = again.signer(TOPIC, 1000, &keys(&[1])).unwrap_err();
    assert!(unknown.contains("a key that is not there"), "{unknown}");

    let mut resealed = again.clone();
    assert_eq!(resealed.reseal(TOPIC, &old), Ok(false));
    assert_eq!(resealed.reseal(TOPIC, &keys(&[1, 0])), Ok(true));
    assert_eq!(resealed.reseal(TOPIC, &keys(&[1, 0])), Ok(false));
    let new = keys(&[1]);
    assert_eq!(resealed.signer(TOPIC, 1000, &new).unwrap().1, [&*secret]);
    assert!(again.clone().reseal(TOPIC, &new).is_err());
}

#[test]
fn headers_are_sealed_for_their_name_and_delivery_is_kept() {
    let view = ViewText {
        key: Some(".meter".into()),
        cloudevents: Some(CloudEvents::Structured),
        ..plain()
    };
    assert!(view.has_expressions());
    let mut one = subscription("wh_1", &Arc::new(owner("ann")), &Arc::new(view));
    let (old, new) = (keys(&[0]), keys(&[1]));
    let line = |name, value| HeaderLine::seal((TOPIC, "wh_1"), (name, value), &old).unwrap();
    one.set_details(Details {
        headers: vec![
            line("Authorization", "Bearer s3cret"),
            line("X-Tenant", "7"),
        ],
        delivery: Some(Delivery {
            order: Order::ByKey,
            concurrent: 3,
            ..Delivery::default()
        }),
        ..Details::default()
    });
    let bytes = one.to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    assert!(!text.contains("s3cret"), "{text}");
    let again = Subscription::of_bytes("wh_1", &bytes).unwrap();
    assert_eq!(again, one);
    assert_eq!(again.delivery().concurrent, 3);
    let opened = again.open_headers(TOPIC, &old).unwrap();
    let expected = [("Authorization", "Bearer s3cret"), ("X-Tenant", "7")];
    assert_eq!(
        opened,
        expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
    );
    // The value of one line cannot be put under another name, or into another subscription.
    let swapped = text.replace("X-Tenant", "X-Other");
    let swapped = Subscription::of_bytes("wh_1", swapped.as_bytes()).unwrap();
    assert!(swapped.open_headers(TOPIC, &old).is_err());
    let moved = Subscription::of_bytes("wh_2", &bytes).unwrap();
    assert!(moved.open_headers(TOPIC, &old).is_err());

    assert!(again.is_current(&old) && !again.is_current(&keys(&[1, 0])));
    let mut resealed = again.clone();
    assert_eq!(resealed.reseal(TOPIC, &keys(&[1, 0])), Ok(true));
    assert_eq!(resealed.open_headers(TOPIC, &new).unwrap(), opened);
    assert!(again.clone().reseal(TOPIC, &new).is_err());
}

#[test]
fn secrets_overlap_until_their_time_is_over() {
    let keys = keys(&[0]);
    let mut one = subscription("wh_1", &Arc::new(owner("ann")), &Arc::new(plain()));
    let secrets: Vec<String> = (0..6)
        .map(|_| access::webhook_signer::new_secret().unwrap())
        .collect();
    let mut add = |at: usize, now, overlap| {
        one.add_secret((TOPIC, &secrets[at]), (now, overlap), &keys)
            .unwrap();
        one.clone()
    };
    add(0, 1000, 0);
    let two = add(1, 2000, 500);
    let valid = |of: &Subscription, now| of.signer(TOPIC, now, &keys).unwrap().1;
    assert_eq!(valid(&two, 2499), [&*secrets[1], &*secrets[0]]);
    assert_eq!(valid(&two, 2500), [&*secrets[1]]);
    // A later rotation makes no secret valid again, or for longer than was said.
    let three = add(2, 2100, 10_000);
    assert_eq!(
        valid(&three, 2200),
        [&*secrets[2], &*secrets[1], &*secrets[0]]
    );
    assert_eq!(valid(&three, 2500), [&*secrets[2], &*secrets[1]]);
    let four = add(3, 2600, 10_000);
    assert_eq!(four.secrets.len(), 3, "what is over is dropped");
    add(4, 2700, 10_000);
    let many = add(5, 2800, 10_000);
    assert_eq!(many.secrets.len(), 4);
    assert_eq!(valid(&many, 3000)[0], secrets[5]);
    let is_last = |it: &Secret| it.until.is_none();
    assert_eq!(many.secrets.iter().filter(|it| is_last(it)).count(), 1);
    let gone = add(0, 3000, 0);
    assert_eq!(valid(&gone, 3000), [&*secrets[0]], "at once");
}

#[test]
fn bounds_hold_for_what_is_being_written_too() {
    let mut registry = Registry::default();
    let first = reserve(&mut registry, "ann").unwrap();
    let second = reserve(&mut registry, "ann").unwrap();
    let third = reserve(&mut registry, "ann").unwrap();
    assert_eq!(reserve(&mut registry, "ann").unwrap_err(), Refusal::TooMany);
    registry.finish(&second, None);
    let again = reserve(&mut registry, "ann").unwrap();
    for (number, reserved) in [first, third, again].iter().enumerate() {
        let made = made(reserved, &format!("wh_{number}"));
        registry.finish(reserved, made);
    }
    assert_eq!(reserve(&mut registry, "ann").unwrap_err(), Refusal::TooMany);
    let bob = reserve(&mut registry, "bob").unwrap();
    reserve(&mut registry, "carl").unwrap();
    assert_eq!(reserve(&mut registry, "dan").unwrap_err(), Refusal::Full);
    registry.finish(&bob, None);
    reserve(&mut registry, "dan").unwrap();
    assert!(registry.remove("wh_1").is_some());
    assert!(registry.remove("wh_1").is_none());
    reserve(&mut registry, "ann").unwrap();
}

#[test]
fn different_expressions_are_bounded_and_equal_ones_are_shared() {
    let mut registry = Registry::default();
    let mut create = |of: &str, view: &ViewText, id: &str| {
        let Start::Reserved(reserved) = start(&mut registry, of, view, None)? else {
            panic!("no request has come before");
        };
        let made = made(&reserved, id);
        registry.finish(&reserved, made);
        Ok(registry.get(id).unwrap().clone())
    };
    let one = create("ann", &filtered(".a"), "wh_1").unwrap();
    let two = create("bob", &filtered(".a"), "wh_2").unwrap();
    assert!(Arc::ptr_eq(&one.subscription.view, &two.subscription.view));
    create("ann", &filtered(".b"), "wh_3").unwrap();
    let third = create("ann", &filtered(".c"), "wh_4").err();
    assert_eq!(third, Some(Refusal::TooManyViews));
    create("bob", &plain(), "wh_5").unwrap();
    registry.remove("wh_3");
    assert_eq!(registry.check_view(&filtered(".c"), BOUNDS), Ok(()));
}

#[test]
fn a_request_that_comes_again_makes_nothing_new() {
    let mut registry = Registry::default();
    let request = Some(("key", "body"));
    let Ok(Start::Reserved(reserved)) = start(&mut registry, "ann", &plain(), request) else {
        panic!("nothing has come before");
    };
    let during = start(&mut registry, "ann", &plain(), request).err();
    assert_eq!(during, Some(Refusal::InProgress));
    let mut one = subscription("wh_1", &reserved.owner, &reserved.view);
    one.set_details(Details {
        request: Some(RequestKey {
            key: "key".to_owned(),
            body: "body".to_owned(),
        }),
        ..Details::default()
    });
    registry.finish(&reserved, Some(known(one)));
    match start(&mut registry, "ann", &plain(), request) {
        Ok(Start::Before(known)) => assert_eq!(&*known.subscription.id, "wh_1"),
        _ => panic!("it has come before"),
    }
    let other = start(&mut registry, "ann", &plain(), Some(("key", "other"))).err();
    assert_eq!(other, Some(Refusal::OtherRequest));
    let of_another = start(&mut registry, "bob", &plain(), Some(("key", "other")));
    assert!(matches!(of_another, Ok(Start::Reserved(_))));
    registry.remove("wh_1");
    let after = start(&mut registry, "ann", &plain(), request);
    assert!(matches!(after, Ok(Start::Reserved(_))), "it is gone");
}

#[test]
fn pages_have_what_belongs_to_their_owner_in_order() {
    let mut registry = Registry::default();
    let (ann, bob) = (Arc::new(owner("ann")), Arc::new(owner("bob")));
    let view = Arc::new(plain());
    for number in [3, 1, 4, 0, 2] {
        let of = if number % 2 == 0 { &ann } else { &bob };
        registry.put(known(subscription(&format!("wh_{number}"), of, &view)));
    }
    let page = |owner: Option<&Owner>, after: &str, most: usize| -> Vec<String> {
        let page = registry.page(owner, after, most);
        page.iter()
            .map(|it| it.subscription.id.to_string())
            .collect()
    };
    assert_eq!(page(Some(&ann), "", 2), ["wh_0", "wh_2"]);
    assert_eq!(page(Some(&ann), "wh_2", 2), ["wh_4"]);
    assert_eq!(page(Some(&bob), "", 9), ["wh_1", "wh_3"]);
    assert_eq!(page(None, "wh_1", 2), ["wh_2", "wh_3"]);
    assert!(page(Some(&owner("carl")), "", 9).is_empty());
    let part = |owner: Option<&Owner>, skipped: usize, most: usize| -> Vec<String> {
        let part = registry.part(owner, skipped, most);
        part.iter()
            .map(|it| it.subscription.id.to_string())
            .collect()
    };
    assert_eq!(part(Some(&ann), 1, 9), ["wh_2", "wh_4"]);
    assert_eq!(part(None, 1, 2), ["wh_1", "wh_2"]);
    assert!(part(Some(&bob), 2, 9).is_empty());
    let counts = [None, Some(&*ann), Some(&owner("carl"))].map(|it| registry.count(it));
    assert_eq!(counts, [5, 3, 0]);
}

/// Any order of creations, of which some fail, changes and deletions: the registry has what a plain
/// list has, and keeps its bounds.
#[test]
fn the_registry_is_what_a_list_is_in_any_order_of_changes() {
    for seed in 1..40 {
        let mut random = Rng::with_seed(seed);
        let mut registry = Registry::default();
        let mut pending: Vec<(Reserved, String)> = Vec::new();
        let mut model: Vec<(String, &str)> = Vec::new();
        for step in 0..300 {
            let of = ["ann", "bob", "carl"][random.usize(..3)];
            match random.u8(..4) {
                0 => {
                    let writing = |it: &&(Reserved, String)| &*it.0.owner.id == of;
                    let own = model.iter().filter(|it| it.1 == of).count()
                        + pending.iter().filter(writing).count();
                    let expected = match () {
                        () if own >= BOUNDS.per_caller => Some(Refusal::TooMany),
                        () if model.len() + pending.len() >= BOUNDS.total => Some(Refusal::Full),
                        () => None,
                    };
                    match reserve(&mut registry, of) {
                        Ok(reserved) => {
                            assert_eq!(expected, None, "seed {seed}, step {step}");
                            pending.push((reserved, of.to_owned()));
                        }
                        Err(refusal) => assert_eq!(Some(refusal), expected, "seed {seed}"),
                    }
                }
                1 if !pending.is_empty() => {
                    let (reserved, of) = pending.swap_remove(random.usize(..pending.len()));
                    let id = format!("wh_{step:03}");
                    let is_made = random.u8(..3) > 0;
                    let made = is_made.then(|| made(&reserved, &id)).flatten();
                    if made.is_some() {
                        let of = ["ann", "bob", "carl"].into_iter().find(|it| **it == *of);
                        model.push((id, of.unwrap()));
                    }
                    registry.finish(&reserved, made);
                }
                2 if !model.is_empty() => {
                    let (id, _) = model.swap_remove(random.usize(..model.len()));
                    assert!(registry.remove(&id).is_some());
                }
                3 if !model.is_empty() => {
                    let (id, _) = &model[random.usize(..model.len())];
                    let before = registry.get(id).unwrap().clone();
                    let after = before.subscription.changed(2000);
                    registry.put(Known {
                        subscription: Arc::new(after),
                        ..before
                    });
                }
                _ => {}
            }
            for of in ["ann", "bob", "carl"] {
                let page = registry.page(Some(&owner(of)), "", 99);
                let mut own: Vec<&str> = model
                    .iter()
                    .filter(|it| it.1 == of)
                    .map(|it| &*it.0)
                    .collect();
                own.sort_unstable();
                let shown: Vec<&str> = page.iter().map(|it| &*it.subscription.id).collect();
                assert_eq!(shown, own, "seed {seed}, step {step}");
            }
            assert_eq!(registry.all().count(), model.len());
        }
    }
}
