//! A screen with the values of a session: what can be chosen, and the text on its pages.

use component::exchange::Exchange;
use component::handler::Services;
use expr::Value;
use expr::template::Template;
use message::{Fault, Kind, Origin};

use crate::check::ITEMS_MAX;
use crate::machine::{MenuKey, Notice, Position};
use crate::plan::{Choice, Keys, LabelledKey, PerLanguage, Plan, Screen, Then};
use crate::text::{Footers, Page, join_line, paginate, transliterate};

/// The most bytes of a screen's text.
const TEXT_MAX: usize = 16 * 1024;

/// An option that is there, with its key.
pub(crate) struct Offered<'p> {
    pub key: String,
    pub choice: &'p Choice,
    /// The item that it stands for.
    pub item: Option<Value>,
}

/// What can be chosen on a screen.
///
/// # Errors
/// What a condition or `each` says.
pub(crate) async fn offered<'p>(
    choices: &'p [Choice],
    keys: &Keys,
    exchange: &mut Exchange,
    services: &dyn Services,
) -> Result<Vec<Offered<'p>>, Fault> {
    let mut offered = Vec::new();
    let mut number = 0;
    for choice in choices {
        if let Some(condition) = &choice.condition {
            let holds = exchange.preemptible(services, |it| it.holds(condition, services));
            if !holds.await? {
                continue;
            }
        }
        let items = match &choice.each {
            None => vec![None],
            Some(each) => {
                let items = exchange.preemptible(services, |it| it.evaluate(&each.items, services));
                listed(&items.await?)?
            }
        };
        for item in items {
            let key = match &choice.key {
                Some(key) => key.clone(),
                None => next_number(&mut number, keys),
            };
            offered.push(Offered { key, choice, item });
        }
    }
    Ok(offered)
}

/// The items of a list; there are none in null.
fn listed(value: &Value) -> Result<Vec<Option<Value>>, Fault> {
    let refuse = |detail: &'static str| Fault::new(Kind::Expression, Origin::Engine, detail);
    if matches!(value, Value::Null) {
        return Ok(Vec::new());
    }
    let Some(items) = expr::value::as_array(value) else {
        return Err(refuse("`each` of a screen gives no list"));
    };
    if items.len() > ITEMS_MAX {
        return Err(refuse("`each` of a screen gives more than 200 items"));
    }
    Ok(items.iter().cloned().map(Some).collect())
}

/// The number of the next option: that of a key of the menu is left out.
fn next_number(number: &mut usize, keys: &Keys) -> String {
    loop {
        *number += 1;
        let key = number.to_string();
        let all = [
            Some(&keys.more),
            Some(&keys.page_back),
            keys.home.as_ref(),
            keys.exit.as_ref(),
        ];
        if !all.into_iter().flatten().any(|it| it.key == key) {
            return key;
        }
    }
}

/// A screen as it is shown.
pub(crate) struct Rendered {
    pub pages: Vec<Page>,
    /// Whether the session ends with the last page: the screen says so, or leaves no key to press.
    pub ends: bool,
}

/// Renders a screen.
///
/// # Errors
/// What a text says, or that it is too long.
pub(crate) async fn render(
    plan: &Plan,
    screen: &Screen,
    position: &Position,
    exchange: &mut Exchange,
    services: &dyn Services,
) -> Result<Rendered, Fault> {
    let language = position.language;
    let mut text = String::new();
    let notice = match (position.notice, &screen.then) {
        (Notice::None, _) => None,
        (Notice::Resumed, _) => Some(&plan.messages.resumed),
        (Notice::Choose, Then::Input(input, _)) => {
            Some(input.invalid.as_ref().unwrap_or(&plan.messages.choose))
        }
        (Notice::Choose, _) => Some(&plan.messages.choose),
    };
    if let Some(notice) = notice {
        text.push_str(notice.text(language));
    }
    if let Some(texts) = &screen.text {
        join_line(&mut text, &fill(texts, language, exchange, services).await?);
    }
    let mut ends = matches!(screen.then, Then::End);
    if let Then::Options(choices) = &screen.then {
        ends = true;
        for offered in offered(choices, &plan.keys, exchange, services).await? {
            ends = false;
            let slot = offered.choice.each.as_ref().map(|it| it.slot);
            let before = slot.zip(offered.item).map(|(slot, item)| {
                let before = exchange.replace_slot(slot, item);
                (slot, before)
            });
            let label = fill(&offered.choice.text, language, exchange, services).await;
            if let Some((slot, before)) = before {
                exchange.set_slot(slot, before);
            }
            join_line(&mut text, &format!("{}. {}", offered.key, label?));
            if text.len() > TEXT_MAX {
                break;
            }
        }
    }
    if text.len() > TEXT_MAX {
        let detail = "the text of a screen is longer than 16 KiB";
        return Err(Fault::new(Kind::Expression, Origin::Engine, detail));
    }
    // Values of other systems may hold what no phone shows and no XML may have.
    text.retain(|it| it == '\n' || !it.is_control());
    let text = match plan.transliterates {
        true => transliterate(&text),
        false => text.as_str().into(),
    };
    let (more, back) = (
        plan.keys.more.line(language),
        plan.keys.page_back.line(language),
    );
    let (first, always) = labels(plan, screen, position);
    ends &= first.is_empty() && always.is_empty();
    let footers = Footers {
        more: &more,
        back: &back,
        first: &first,
        always: &always,
        ends,
    };
    let pages = paginate(&text, footers, plan.limit);
    Ok(Rendered { pages, ends })
}

/// The labels of the keys that lead to other screens: on the first page, and on all.
fn labels(plan: &Plan, screen: &Screen, position: &Position) -> (String, String) {
    let (mut first, mut always) = (String::new(), String::new());
    if matches!(screen.then, Then::End) {
        return (first, always);
    }
    let line = |key: &LabelledKey| key.line(position.language);
    // On further pages it is there for the page before.
    if let Some(back) = plan
        .keys
        .back
        .as_ref()
        .filter(|_| !position.history.is_empty())
    {
        first = line(back);
    }
    let home = plan
        .keys
        .home
        .as_ref()
        .filter(|_| position.shows(MenuKey::Home));
    for key in home.into_iter().chain(&plan.keys.exit) {
        join_line(&mut always, &line(key));
    }
    (first, always)
}

async fn fill(
    texts: &PerLanguage<Template>,
    language: usize,
    exchange: &mut Exchange,
    services: &dyn Services,
) -> Result<String, Fault> {
    let Some(template) = texts.of(language) else {
        return Ok(String::new());
    };
    let filled = exchange.preemptible(services, |it| it.fill_text(template, services));
    filled.await
}
