//! A menu's document to a [`Plan`]: every problem is reported at its place.

pub(crate) mod defaults;
mod parts;
mod screen;
mod sending;
mod texts;
mod translations;

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use component::block::Block;
use component::definition::BuildContext;
use component::key_value::KeyValueStore;
use config::{Entry, Node, Report, Span};
use journal::Durability;

use crate::check;
use crate::codes::{BAD_CODE, BAD_LANGUAGE, BAD_MENU};
use crate::dial::{Codes, Entry as CodeEntry, Pattern};
use crate::plan::{Keys, LineBreak, Plan, ScreenId, Slots, Then};
use crate::text::Limit;
use texts::Languages;
use translations::Translations;

/// The names of every menu.
const BUILT_IN: [&str; 2] = ["msisdn", "ussd"];

/// What all parts of a menu are read with.
pub(crate) struct Reading<'a, 'b> {
    pub context: &'a mut BuildContext<'b>,
    pub languages: Languages,
    /// Texts in files of their own.
    pub translations: Option<Translations>,
    pub transliterates: bool,
    pub limit: Limit,
    /// The numbers of the screens.
    pub screens: HashMap<String, ScreenId>,
    /// The slots of variables that are not kept.
    pub secret: Vec<usize>,
}

/// Reads the keys of a menu, whose shape has been checked.
pub(crate) fn read(document: &Node, context: &mut BuildContext<'_>) -> Option<Plan> {
    let before = context.problems();
    let languages = read_languages(document.get("languages")?, context.report);
    let transliterates = flag(document.get("transliterate"));
    let nodes = document.get("screens").and_then(Node::as_mapping)?;
    let screens = read_names(nodes, context.report);
    let ussd_node = document.get("from")?.get("ussd")?;
    let [msisdn, ussd] = BUILT_IN.map(|name| context.scope.declare(name));
    let texts = document.get("texts");
    let texts = texts.map(|it| Translations::read(it, &languages.names, context));
    if matches!(texts, Some(None)) {
        return None;
    }
    let mut reading = Reading {
        context,
        languages,
        translations: texts.flatten(),
        transliterates,
        limit: read_limit(ussd_node),
        screens,
        secret: Vec::new(),
    };
    reading.declare_all((document, nodes), ussd_node);
    let keys = reading.read_keys(document.get("keys"));
    let messages = reading.read_messages(document.get("messages"));
    let sessions = document.get("sessions");
    let timeout = reading.read_timeout(sessions);
    let resume = reading.read_resume(sessions, keys.as_ref());
    let on_end = reading.read_on_end(document);
    let read: Vec<_> = nodes.iter().map(|it| reading.read_screen(it)).collect();
    let codes = reading.read_codes(ussd_node.get("codes")?);
    let screens = read.into_iter().collect::<Option<Vec<_>>>()?;
    let slots = reading.slots((msisdn?, ussd?), nodes, ussd_node);
    let sessions_in = sessions.and_then(|it| reading.read_place(it));
    let languages = reading.languages.names.clone();
    let has_actions = screens.iter().any(|screen| screen.once.is_some());
    let plan = Plan {
        has_actions,
        languages,
        screens,
        keys: keys?,
        messages: messages?,
        codes,
        limit: reading.limit,
        transliterates,
        timeout,
        resume,
        on_end,
        sessions_max: read_count(sessions, "max", 100_000),
        per_subscriber: read_count(sessions, "per_subscriber", 4),
        durability: read_durability(sessions),
        sessions_in,
        answers: document
            .get("answers")
            .and_then(|it| reading.read_answers(it)),
        push: document.get("push").and_then(|it| reading.read_push(it)),
        line_break: LineBreak::of(ussd_node),
        country: text_of(ussd_node.get("country")),
        slots,
    };
    if let Some(translations) = &reading.translations {
        translations.warn_unused(reading.context.report);
    }
    check::check(&plan, (document, nodes), context.report);
    (context.problems() == before).then_some(plan)
}

fn text_of(node: Option<&Node>) -> Option<String> {
    node.and_then(Node::as_str).map(str::to_owned)
}

/// How many sessions there may be, by one of the keys. A value out of its range has been reported
/// with the shape.
fn read_count(sessions: Option<&Node>, key: &str, default: usize) -> usize {
    let count = sessions.and_then(|it| number(it.get(key)?));
    count.map_or(default, |it| it as usize)
}

/// What sessions outlive. A value that is none has been reported with the shape.
fn read_durability(sessions: Option<&Node>) -> Durability {
    match sessions.and_then(|it| it.get("durability")?.as_str()) {
        Some("disk") => Durability::Disk,
        _ => Durability::Process,
    }
}

impl Reading<'_, '_> {
    /// Where the values of names lie.
    fn slots(
        &mut self,
        (msisdn, ussd): (usize, usize),
        screens: &[Entry],
        trigger: &Node,
    ) -> Slots {
        Slots {
            msisdn,
            ussd,
            kept: self.kept(),
            chosen: self.chosen(screens, trigger),
            secret: self.secret.clone(),
        }
    }

    /// The variables that subscribers choose, but for secrets.
    fn chosen(&mut self, screens: &[Entry], ussd: &Node) -> Vec<Arc<str>> {
        let inputs = screens.iter().filter_map(|it| it.value.get("input"));
        let options = screens.iter().filter_map(|it| it.value.get("options"));
        let options = options.flat_map(|it| it.as_sequence().unwrap_or_default());
        let nodes = inputs.chain(options).filter_map(|it| it.get("as"));
        let nodes: Vec<&Node> = nodes.collect();
        let mut names: Vec<Arc<str>> = Vec::new();
        for node in nodes {
            let slot = self.slot(node);
            let is_secret = slot.is_some_and(|it| self.secret.contains(&it));
            names.extend(node.as_str().filter(|_| !is_secret).map(Arc::from));
        }
        let codes = ussd.get("codes").and_then(Node::as_mapping);
        for entry in codes.unwrap_or_default() {
            let pattern = Pattern::parse(&entry.key);
            names.extend(pattern.iter().flat_map(Pattern::parameters).map(Arc::from));
        }
        names
    }

    /// The variables whose values are kept between messages: all but secrets.
    fn kept(&self) -> Vec<(Arc<str>, usize)> {
        let declared = self.context.scope.declared();
        let kept =
            declared.filter(|(name, slot)| !BUILT_IN.contains(name) && !self.secret.contains(slot));
        kept.map(|(name, slot)| (Arc::from(name), slot)).collect()
    }
}

/// The numbers of the screens.
fn read_names(screens: &[Entry], report: &mut Report) -> HashMap<String, ScreenId> {
    for entry in screens.iter().filter(|entry| !is_name(&entry.key)) {
        let message = format!("`{}` is not a name for a screen", entry.key.escape_debug());
        let diagnostic = report.error(BAD_MENU, entry.key_span, message);
        diagnostic.hint("a name has letters, digits, `_` and `-`, and at most 60 of them");
    }
    let names = screens.iter().enumerate();
    names.map(|(id, entry)| (entry.key.clone(), id)).collect()
}

fn flag(node: Option<&Node>) -> bool {
    node.is_some_and(|it| matches!(it.value, config::Value::Bool(true)))
}

fn number(node: &Node) -> Option<i64> {
    match &node.value {
        config::Value::Number(number) => number.as_i64(),
        _ => None,
    }
}

fn is_name(text: &str) -> bool {
    let is_part = |it: u8| it.is_ascii_alphanumeric() || b"_-".contains(&it);
    !text.is_empty() && text.len() <= 60 && text.bytes().all(is_part)
}

fn read_languages(node: &Node, report: &mut Report) -> Languages {
    let mut names: Vec<Arc<str>> = Vec::new();
    for item in node.as_sequence().unwrap_or_default() {
        let name = item.as_str().unwrap_or_default();
        if !is_name(name) || names.iter().any(|it| **it == *name) {
            let message = match is_name(name) {
                true => format!("a second `{name}`"),
                false => format!("`{}` is not a language", name.escape_debug()),
            };
            let diagnostic = report.error(BAD_LANGUAGE, item.span, message);
            diagnostic.hint("write each language once, such as `[en, sw]`");
        }
        names.push(name.into());
    }
    Languages { names }
}

fn read_limit(ussd: &Node) -> Limit {
    // Others than 60 to 182 have been reported.
    let limit = ussd.get("limit").and_then(number);
    let limit = limit.and_then(|it| Limit::new(it as usize));
    let line_break = LineBreak::of(ussd).width();
    limit.unwrap_or_default().with_line_breaks(line_break)
}

impl Reading<'_, '_> {
    /// Makes all names of the menu known before anything is read that may use them: each may be
    /// used on every screen, and is null where it has no value yet.
    fn declare_all(&mut self, (document, screens): (&Node, &[Entry]), ussd: &Node) {
        for screen in screens {
            if let Some(name) = screen.value.get("input").and_then(|it| it.get("as")) {
                self.declare(name);
                let is_secret = screen
                    .value
                    .get("input")
                    .is_some_and(|it| it.get("pin").is_some());
                let slot = self.slot(name).filter(|_| is_secret);
                self.secret.extend(slot);
            }
            let options = screen.value.get("options").and_then(Node::as_sequence);
            for name in options
                .unwrap_or_default()
                .iter()
                .filter_map(|it| it.get("as"))
            {
                self.declare(name);
            }
            if let Some(work) = screen.value.get("do") {
                self.declare_within(work);
            }
        }
        let codes = ussd.get("codes").and_then(Node::as_mapping);
        for entry in codes.unwrap_or_default() {
            let pattern = Pattern::parse(&entry.key);
            for name in pattern.iter().flat_map(Pattern::parameters) {
                self.declare_named(name, entry.key_span);
            }
        }
        if let Some(steps) = document.get("on_end") {
            self.declare_within(steps);
        }
        if let Some(push) = document.get("push") {
            self.declare_pushed(push);
        }
    }

    /// The names that steps declare. One that cannot be one is reported where the step is read.
    fn declare_within(&mut self, node: &Node) {
        for item in node.as_sequence().unwrap_or_default() {
            self.declare_within(item);
        }
        for entry in node.as_mapping().unwrap_or_default() {
            let names: Vec<&str> = match entry.key.as_str() {
                "as" => entry.value.as_str().into_iter().collect(),
                "set" => {
                    let names = entry.value.as_mapping().unwrap_or_default().iter();
                    names.map(|it| it.key.as_str()).collect()
                }
                _ => Vec::new(),
            };
            for name in names
                .into_iter()
                .filter(|it| component::scope::is_variable(it))
            {
                match BUILT_IN.contains(&name) {
                    true => self.refuse_built_in(name, entry.key_span),
                    false => drop(self.context.scope.declare(name)),
                }
            }
            self.declare_within(&entry.value);
        }
    }

    fn declare(&mut self, node: &Node) {
        if let Some(name) = node.as_str() {
            self.declare_named(name, node.span);
        }
    }

    fn declare_named(&mut self, name: &str, span: Span) {
        match BUILT_IN.contains(&name) {
            true => self.refuse_built_in(name, span),
            false => drop(self.context.declare(name, span, BAD_MENU)),
        }
    }

    fn refuse_built_in(&mut self, name: &str, span: Span) {
        let message = format!("`${name}` is there already: every menu has it");
        let diagnostic = self.context.report.error(BAD_MENU, span, message);
        diagnostic.hint("choose another name");
    }

    /// The slot of a name that has been declared.
    fn slot(&mut self, node: &Node) -> Option<usize> {
        let name = node.as_str()?;
        let mut declared = self.context.scope.declared();
        declared.find(|(known, _)| *known == name).map(|it| it.1)
    }

    /// The number of a screen.
    fn screen(&mut self, node: &Node) -> Option<ScreenId> {
        let name = node.as_str()?;
        if let Some(id) = self.screens.get(name) {
            return Some(*id);
        }
        let message = format!("there is no screen `{}`", name.escape_debug());
        let near = config::suggest(name, self.screens.keys().map(String::as_str));
        let hint = near.map(|near| format!("did you mean `{near}`?"));
        let diagnostic = self.context.report.error(BAD_MENU, node.span, message);
        diagnostic.hint(hint.unwrap_or_else(|| "name one of `screens`".to_owned()));
        None
    }

    /// The connection that has the sessions, when they are not in the data folder.
    fn read_place(&mut self, sessions: &Node) -> Option<Arc<dyn KeyValueStore>> {
        let node = sessions.get("in")?;
        let name = node.as_str()?;
        let connections = self.context.connections;
        let found = connections.get(name);
        let store = found.and_then(|it| it.key_value.clone());
        let report = &mut *self.context.report;
        if store.is_none() {
            let message = match found {
                Some(found) => format!("a `{}` connection keeps no sessions", found.kind),
                None => format!("there is no connection `{}`", name.escape_debug()),
            };
            let usable = connections.iter().filter(|it| it.key_value.is_some());
            let near = config::suggest(name, usable.map(|it| it.name.as_str()));
            let hint = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => "declare one of the kind `redis` under `use:`".to_owned(),
            };
            report.error(BAD_MENU, node.span, message).hint(hint);
        }
        for (key, hint) in [
            (
                "max",
                "bound the memory of the server, such as by `maxmemory` of Redis",
            ),
            (
                "durability",
                "the server decides, such as by `appendonly` and `appendfsync` of Redis",
            ),
        ] {
            if let Some(node) = sessions.get(key) {
                let message =
                    format!("`{key}` has no effect on sessions that are not in the data folder");
                report.error(BAD_MENU, node.span, message).hint(hint);
            }
        }
        store
    }

    /// A duration within bounds. One that is none has been reported with the shape.
    fn time(
        &mut self,
        node: Option<&Node>,
        default: Duration,
        range: RangeInclusive<Duration>,
    ) -> Duration {
        let Some(node) = node else { return default };
        let time: Option<config::Duration> = node.as_str().and_then(|it| it.parse().ok());
        let Some(time) = time else { return default };
        if !range.contains(&time.0) {
            let [least, most] = [range.start(), range.end()].map(|it| config::Duration(*it));
            let message = format!("this is from {least} to {most}");
            self.context.report.error(BAD_MENU, node.span, message);
        }
        time.0
    }

    /// How long a session lasts without a key.
    fn read_timeout(&mut self, sessions: Option<&Node>) -> Duration {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        let node = sessions.and_then(|it| it.get("timeout"));
        self.time(node, minutes(3), Duration::from_secs(10)..=minutes(60))
    }

    /// How long a session that was dropped can be resumed.
    fn read_resume(&mut self, sessions: Option<&Node>, keys: Option<&Keys>) -> Option<Duration> {
        let node = sessions?.get("resume")?;
        let seconds = Duration::from_secs;
        let time = self.time(Some(node), seconds(300), seconds(10)..=seconds(24 * 3600));
        if keys.is_some_and(|keys| keys.home.is_none()) {
            let message = "a session that is resumed needs a way to begin anew";
            let diagnostic = self.context.report.error(BAD_MENU, node.span, message);
            diagnostic.hint("say `keys: { home: { key: \"00\", text: Home } }`");
        }
        Some(time)
    }

    /// The steps that follow the end of a session.
    fn read_on_end(&mut self, document: &Node) -> Option<Block> {
        let items = document.get("on_end")?;
        let block = self.context.branch("on_end", items, false)?;
        if block.ends_flow() || block.streams() {
            let message = "nobody gets a reply when a session has ended";
            self.context.report.error(BAD_MENU, items.span, message);
        }
        Some(block)
    }

    fn read_codes(&mut self, node: &Node) -> Codes {
        let mut entries: Vec<(CodeEntry, Span)> = Vec::new();
        for entry in node.as_mapping().unwrap_or_default() {
            let screen = self.screen(&entry.value);
            let pattern = match Pattern::parse(&entry.key) {
                Ok(pattern) => pattern,
                Err(message) => {
                    let diagnostic = self.context.report.error(BAD_CODE, entry.key_span, message);
                    diagnostic.hint("write `\"*123#\": start` or `\"*123*{amount}#\": confirm`");
                    continue;
                }
            };
            let same = entries.iter().find(|(it, _)| it.pattern.is_like(&pattern));
            if let Some((_, first)) = same {
                let message = "another code takes the same digits";
                let report = &mut *self.context.report;
                let diagnostic = report.error(BAD_CODE, entry.key_span, message);
                diagnostic.also(*first, "this one");
            }
            let mut slots = Vec::new();
            for name in pattern.parameters() {
                let mut declared = self.context.scope.declared();
                let slot = declared.find(|(known, _)| *known == name).map(|it| it.1);
                if slot.is_some_and(|it| self.secret.contains(&it)) {
                    let message = format!("`{name}` is a PIN: it cannot stand in what is dialled");
                    let diagnostic = self.context.report.error(BAD_CODE, entry.key_span, message);
                    diagnostic
                        .hint("ask for it on a screen: phones and networks keep what is dialled");
                }
                slots.extend(slot);
            }
            let Some(screen) = screen else { continue };
            let code = CodeEntry {
                pattern,
                screen,
                slots,
            };
            entries.push((code, entry.key_span));
        }
        Codes::new(entries.into_iter().map(|(entry, _)| entry).collect())
    }
}

impl Plan {
    /// The screen whose input becomes the variable at a slot.
    pub fn input_of(&self, slot: usize) -> Option<ScreenId> {
        self.screens.iter().position(|screen| match &screen.then {
            Then::Input(input, _) => input.slot == slot,
            _ => false,
        })
    }
}
