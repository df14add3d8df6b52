//! A menu as a whole: screens that nothing leads to, that do not get anywhere, and keys that mean
//! two things.

use config::{Entry, Node, Report, Span};

use crate::codes::{DEAD_END, KEY_TAKEN, UNREACHABLE_SCREEN};
use crate::plan::{Choice, Plan, Screen, ScreenId, Then};

/// Reports what is wrong with a menu as a whole.
pub(crate) fn check(plan: &Plan, (document, nodes): (&Node, &[Entry]), report: &mut Report) {
    check_reachable(plan, nodes, report);
    check_ends(plan, nodes, report);
    check_menu_keys(plan, document, report);
    for (screen, entry) in plan.screens.iter().zip(nodes) {
        if let Then::Options(choices) = &screen.then {
            check_keys(plan, choices, entry, report);
        }
    }
}

/// The screens that may follow one.
fn following(screen: &Screen) -> Vec<ScreenId> {
    let mut following = following_of(&screen.then);
    following.extend(screen.once.as_ref().map(|once| once.unsure));
    following
}

fn following_of(then: &Then) -> Vec<ScreenId> {
    match then {
        Then::Options(choices) => choices.iter().map(|it| it.go).collect(),
        Then::Input(input, targets) => {
            let targets = targets.iter().map(|it| it.screen);
            targets.chain(input.after_tries).collect()
        }
        Then::Go(targets) => targets.iter().map(|it| it.screen).collect(),
        Then::End => Vec::new(),
    }
}

fn check_reachable(plan: &Plan, nodes: &[Entry], report: &mut Report) {
    let mut open: Vec<ScreenId> = plan.codes.screens().collect();
    let mut is_reached = vec![false; plan.screens.len()];
    while let Some(id) = open.pop() {
        if let Some(reached) = is_reached.get_mut(id).filter(|it| !**it) {
            *reached = true;
            open.extend(plan.screen(id).into_iter().flat_map(following));
        }
    }
    for (entry, _) in nodes.iter().zip(is_reached).filter(|(_, reached)| !reached) {
        let message = format!("nothing leads to screen `{}`", entry.key);
        let diagnostic = report.error(UNREACHABLE_SCREEN, entry.key_span, message);
        diagnostic.hint("name it under `go`, or under `codes`");
    }
}

/// Screens that go on at once must come to one that waits or ends.
fn check_ends(plan: &Plan, nodes: &[Entry], report: &mut Report) {
    let mut stops: Vec<bool> = plan.screens.iter().map(|it| it.text.is_some()).collect();
    for _ in 0..plan.screens.len() {
        for (id, screen) in plan.screens.iter().enumerate() {
            let comes_to_stop = following(screen)
                .iter()
                .any(|next| stops.get(*next).copied().unwrap_or_default());
            if let Some(stop) = stops.get_mut(id) {
                *stop |= comes_to_stop;
            }
        }
    }
    for (entry, _) in nodes.iter().zip(stops).filter(|(_, stops)| !stops) {
        let message = format!("screen `{}` leads to none that shows anything", entry.key);
        report.error(DEAD_END, entry.key_span, message);
    }
}

/// The keys of the menu itself, with their names.
fn menu_keys(plan: &Plan) -> Vec<(&'static str, &str)> {
    let keys = &plan.keys;
    let mut all = vec![
        ("more", keys.more.key.as_str()),
        ("back", keys.page_back.key.as_str()),
    ];
    all.extend(keys.home.as_ref().map(|it| ("home", it.key.as_str())));
    all.extend(keys.exit.as_ref().map(|it| ("exit", it.key.as_str())));
    all
}

fn check_menu_keys(plan: &Plan, document: &Node, report: &mut Report) {
    let span = document.get("keys").map_or(document.span, |it| it.span);
    let all = menu_keys(plan);
    for (at, (name, key)) in all.iter().enumerate() {
        let others = all.get(..at).unwrap_or_default();
        if let Some((other, _)) = others.iter().find(|(_, it)| it == key) {
            let message = format!("`{other}` and `{name}` are both on the key `{key}`");
            report.error(KEY_TAKEN, span, message);
        }
    }
}

/// The keys of options: those that are named, and the numbers of the others.
fn check_keys(plan: &Plan, choices: &[Choice], entry: &Entry, report: &mut Report) {
    let nodes = entry.value.get("options").and_then(Node::as_sequence);
    let spans: Vec<Span> = nodes.unwrap_or_default().iter().map(|it| it.span).collect();
    let numbered = choices.iter().filter(|it| it.key.is_none());
    let count = numbered.clone().count();
    let is_open = numbered.clone().any(|it| it.each.is_some());
    let is_number = |key: &str| {
        let number: Option<usize> = key.parse().ok().filter(|_| !key.starts_with('0'));
        number.is_some_and(|it| it > 0 && (it <= count || (is_open && it <= count + ITEMS_MAX)))
    };
    let mut seen: Vec<&str> = Vec::new();
    for (choice, span) in choices.iter().zip(spans) {
        let Some(key) = choice.key.as_deref() else {
            continue;
        };
        if seen.contains(&key) || is_number(key) {
            let message = match seen.contains(&key) {
                true => format!("a second option on the key `{key}`"),
                false => format!("the key `{key}` is also the number of an option without a key"),
            };
            let diagnostic = report.error(KEY_TAKEN, span, message);
            diagnostic.hint("choose another key, such as `\"0\"`");
        }
        seen.push(key);
    }
    // A fixed number of options on one page would clash with nothing, but texts may grow.
    for (name, key) in menu_keys(plan) {
        if seen.contains(&key) || (is_number(key) && !is_open) {
            let message = format!("the key `{key}` is that of `{name}` of the menu");
            let diagnostic = report.error(KEY_TAKEN, entry.key_span, message);
            diagnostic.hint("choose another key for one of them");
        }
    }
}

/// The most items of an `each`. Where they reach the number of a key of the menu, that number is
/// left out.
pub(crate) const ITEMS_MAX: usize = 200;
