//! A menu as a whole: screens that nothing leads to, that do not get anywhere, and keys that mean
//! two things.

use config::{Entry, Node, Report, Span};

use expr::template::{Part, Template};

use crate::codes::{BAD_LANGUAGE, BAD_MENU, DEAD_END, KEY_TAKEN, UNREACHABLE_SCREEN};
use crate::input::Rule;
use crate::plan::{Choice, Input, Plan, Screen, ScreenId, Then};
use crate::read::defaults;

/// Reports what is wrong with a menu as a whole.
pub(crate) fn check(plan: &Plan, (document, nodes): (&Node, &[Entry]), report: &mut Report) {
    check_reachable(plan, nodes, report);
    check_ends(plan, nodes, report);
    check_way_out(plan, nodes, report);
    check_menu_keys(plan, document, report);
    check_beginnings(plan, document, report);
    check_messages(plan, document, report);
    for (screen, entry) in plan.screens.iter().zip(nodes) {
        match &screen.then {
            Then::Options(choices) => check_keys(plan, choices, entry, report),
            Then::Input(input, _) => {
                check_input_keys(plan, input, entry, report);
                check_input_pages(plan, (screen, input), entry, report);
            }
            _ => {}
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
    let pushed = plan.push.iter().flat_map(|it| &it.screens);
    let pushed = pushed.map(|(screen, _)| *screen);
    let mut open: Vec<ScreenId> = plan.codes.screens().chain(pushed).collect();
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
        diagnostic.hint("name it under `go`, `codes` or `push.screens`");
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

/// Each screen has a way to the end of the session, unless a key of the menu ends it.
fn check_way_out(plan: &Plan, nodes: &[Entry], report: &mut Report) {
    if plan.keys.exit.is_some() {
        return;
    }
    let ends = |screen: &Screen| match &screen.then {
        Then::End => true,
        Then::Input(input, _) => input.tries.is_some() && input.after_tries.is_none(),
        _ => false,
    };
    let mut has_way: Vec<bool> = plan.screens.iter().map(ends).collect();
    for _ in 0..plan.screens.len() {
        for (id, screen) in plan.screens.iter().enumerate() {
            let mut next = following(screen).into_iter();
            let leads_out = next.any(|next| has_way.get(next).copied().unwrap_or_default());
            if let Some(has_way) = has_way.get_mut(id) {
                *has_way |= leads_out;
            }
        }
    }
    for (entry, _) in nodes.iter().zip(has_way).filter(|(_, has_way)| !has_way) {
        let message = format!("no way leads from screen `{}` to the end", entry.key);
        let diagnostic = report.error(DEAD_END, entry.key_span, message);
        diagnostic.hint("lead to a screen with `end: true`, or say `keys: { exit: … }`");
    }
}

/// The screens that one leads to at once, itself included.
fn at_once(plan: &Plan, from: ScreenId) -> Vec<ScreenId> {
    let mut open = vec![from];
    let mut found: Vec<ScreenId> = Vec::new();
    while let Some(id) = open.pop() {
        if found.contains(&id) {
            continue;
        }
        found.push(id);
        if let Some(Then::Go(targets)) = plan.screen(id).map(|it| &it.then) {
            open.extend(targets.iter().map(|it| it.screen));
        }
    }
    found
}

/// The first screen of a session is where the key `home` leads, what a flow pushes comes without
/// anybody having asked for it, and what was `unsure` has not been asked about yet: none of them
/// may begin an action.
fn check_beginnings(plan: &Plan, document: &Node, report: &mut Report) {
    let acts = |id: &ScreenId| {
        let mut passed = at_once(plan, *id).into_iter();
        passed.any(|it| plan.screen(it).is_some_and(|it| it.once.is_some()))
    };
    let name = |id: ScreenId| plan.screen(id).map_or("", |it| &*it.name).to_owned();
    let span = |node: Option<&Node>| node.map_or(document.span, |it| it.span);
    let pushed = plan.push.iter().flat_map(|it| &it.screens);
    for (screen, _) in pushed.filter(|(screen, _)| acts(screen)) {
        let message = format!(
            "`{}` begins an action that nobody has asked for",
            name(*screen)
        );
        let at = span(document.get("push").and_then(|it| it.get("screens")));
        let diagnostic = report.error(BAD_MENU, at, message);
        diagnostic.hint("push a screen that asks, with an option that leads to the action");
    }
    // What may have happened is not tried again before somebody says so.
    let screens = document.get("screens").and_then(Node::as_mapping);
    for screen in &plan.screens {
        if screen.once.as_ref().is_some_and(|it| acts(&it.unsure)) {
            let message = format!(
                "`unsure` of `{}` leads to an action without a key being pressed",
                screen.name
            );
            let named = |it: &&Entry| *it.key == *screen.name;
            let node = screens.unwrap_or_default().iter().find(named);
            let once = node.and_then(|it| it.value.get("once"));
            let diagnostic = report.error(BAD_MENU, span(once), message);
            diagnostic.hint("lead to a screen that asks, with an option for the action");
        }
    }
    if plan.keys.home.is_none() {
        return;
    }
    if let Some(screen) = plan.codes.screens().find(acts) {
        let message = format!(
            "the key `home` would begin the action of `{}` again",
            name(screen)
        );
        let at = span(document.get("keys").and_then(|it| it.get("home")));
        let diagnostic = report.error(BAD_MENU, at, message);
        diagnostic.hint("lead the code to a screen that asks, with an option for the action");
    }
}

/// Messages that nobody has written are in English where their language is not known here.
fn check_messages(plan: &Plan, document: &Node, report: &mut Report) {
    let Some(first) = plan.languages.iter().find(|it| !defaults::has(it)) else {
        return;
    };
    let messages = document.get("messages");
    let is_missing = |name: &&str| messages.is_none_or(|it| it.get(name).is_none());
    let mut names = vec!["choose", "unknown", "failed"];
    names.extend(plan.keys.exit.as_ref().map(|_| "exit"));
    names.extend(plan.has_actions.then_some("pending"));
    names.extend(plan.has_actions.then_some("lost"));
    names.extend(plan.resume.map(|_| "resumed"));
    let missing: Vec<&str> = names.into_iter().filter(is_missing).collect();
    if missing.is_empty() {
        return;
    }
    let span = match messages {
        Some(messages) => messages.span,
        None => document
            .get("languages")
            .map_or(document.span, |it| it.span),
    };
    let names: Vec<String> = missing.iter().map(|it| format!("`{it}`")).collect();
    let message = format!(
        "in `{first}` too these messages are in English: {}",
        names.join(", ")
    );
    let diagnostic = report.warning(BAD_LANGUAGE, span, message);
    diagnostic.hint("write them under `messages`, in each language");
}

/// Keys of the menu that are always there must not be numbers that can be typed.
fn check_input_keys(plan: &Plan, input: &Input, entry: &Entry, report: &mut Report) {
    if matches!(input.rule, Rule::Text { .. }) {
        return;
    }
    let keys = &plan.keys;
    let all = [
        ("back", &keys.back),
        ("home", &keys.home),
        ("exit", &keys.exit),
    ];
    for (name, key) in all {
        let Some(key) = key.as_ref().map(|it| it.key.as_str()) else {
            continue;
        };
        if may_be_typed(key, input) {
            let message = format!("`{key}` is the key `{name}`, and may be typed here too");
            let span = entry
                .value
                .get("input")
                .map_or(entry.key_span, |it| it.span);
            let diagnostic = report.error(KEY_TAKEN, span, message);
            diagnostic.hint("choose a key such as `00` or `#`, or another range");
        }
    }
}

/// Whether a key of the menu may be the input. Nobody types a number with a zero in front, but for
/// a PIN.
fn may_be_typed(key: &str, input: &Input) -> bool {
    let is_padded = key.len() > 1 && key.starts_with('0') && !input.rule.is_secret();
    !is_padded && input.rule.read(key).is_some()
}

/// A number that is a key of pages cannot be typed while there are several.
fn check_input_pages(
    plan: &Plan,
    (screen, input): (&Screen, &Input),
    entry: &Entry,
    report: &mut Report,
) {
    let fixed = |template: &Template| {
        let texts = template.parts().iter().filter_map(|part| match part {
            Part::Text(text) => Some(&**text),
            Part::Hole(_) => None,
        });
        texts.collect::<String>()
    };
    let mut texts = screen.text.iter().flat_map(|it| &it.0);
    if matches!(input.rule, Rule::Text { .. }) || texts.all(|it| plan.limit.holds_all(&fixed(it))) {
        return;
    }
    let more = ("more", &plan.keys.more);
    // One that is also the key `back` is refused in any case.
    let back = Some(("back", &plan.keys.page_back)).filter(|_| plan.keys.back.is_none());
    let keys = [Some(more), back].into_iter().flatten();
    for (name, key) in keys.map(|(name, it)| (name, it.key.as_str())) {
        if may_be_typed(key, input) {
            let message = format!(
                "the screen has several pages: `{key}` is their key `{name}`, and cannot be typed"
            );
            let diagnostic = report.error(KEY_TAKEN, entry.key_span, message);
            diagnostic.hint("choose a key such as `00` or `#`, or say it in one page");
        }
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
        if key.is_empty() || key.trim() != key || key.contains(char::is_control) {
            let message = format!("nobody can type the key `{}`", key.escape_debug());
            let diagnostic = report.error(BAD_MENU, span, message);
            diagnostic.hint("a key has no blanks around it and no control characters");
        }
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
