//! What `intertie-bench ussd` sends: dialogues of subscribers, as Africa's Talking sends them, each
//! with a number of its own in the session's id and in the subscriber's. The menus are in
//! `peers/ussd`.

mod sessions;

use std::time::Duration;

use super::body::{Bodies, FIRST};
use super::load::Dialogue;
use super::results::{Case, Variant};
use super::scenario::Behind;

/// So many connections of gateways press the keys of sessions that stay open.
pub(super) const GATEWAYS: usize = 32;

/// What was typed so far, and the screen that answers it.
type Turn = (&'static str, &'static str);

/// Five screens without a back end.
const MENU: [Turn; 5] = [
    (
        "",
        "CON Airtime for +254NUMBER\n1. Buy\n2. Balance\n3. Kiswahili\n0. Exit",
    ),
    ("1", "CON How much?\n#. Back"),
    (
        "1*AMOUNT",
        "CON Buy airtime for AMOUNT?\n1. Yes\n2. No\n#. Back",
    ),
    (
        "1*AMOUNT*1",
        "CON Pay by\n1. Airtime account\n2. Mobile money\n#. Back",
    ),
    (
        "1*AMOUNT*1*2",
        "END Thank you, +254NUMBER: AMOUNT by mobile money.",
    ),
];

/// An order, with all systems behind its last screen.
const COMPLEX: [Turn; 4] = [
    ("", "CON Shop\n1. Order the usual\n0. Exit"),
    ("1", "CON Your customer number?"),
    ("1*42", "CON Order for 297.25?\n1. Yes\n2. No"),
    (
        "1*42*1",
        "END Order NUMBER is accepted, Customer 42: 297.25, 4 items.",
    ),
];

/// A payment that a slow service decides about.
const LATENCY: [Turn; 2] = [
    ("", "CON Pay the bill?\n1. Yes\n2. No"),
    ("1", "END Paid: NUMBER."),
];

/// A request of the subscriber with this number, and the screen that answers it.
fn filled((text, screen): Turn, number: u64, amount: usize) -> (String, String) {
    let (number, amount) = (number.to_string(), amount.to_string());
    let of = |text: &str| text.replace("NUMBER", &number).replace("AMOUNT", &amount);
    let text = of(text).replace('*', "%2A");
    let sent = format!(
        "sessionId=ATUid_{number}&phoneNumber=%2B254{number}&networkCode=63902\
         &serviceCode=%2A123%23&text={text}"
    );
    (sent, of(screen))
}

/// The requests of a dialogue, and what must come back.
///
/// # Errors
/// Never, but for a dialogue without a turn.
pub(super) fn dialogue(behind: Behind, case: &Case) -> anyhow::Result<(Bodies, Dialogue)> {
    let turns: &[Turn] = match behind {
        Behind::Nothing => &MENU,
        Behind::Orchestrate => &COMPLEX,
        Behind::Await => &LATENCY,
    };
    let mut all = turns.iter().map(|turn| {
        let (sent, screen) = filled(*turn, FIRST, 50);
        Bodies::text(sent, screen)
    });
    let first = all.next();
    let first = first.ok_or_else(|| anyhow::anyhow!("a dialogue without a turn"))?;
    let think = match case.variant {
        Variant::Think(milliseconds) => Duration::from_millis(milliseconds),
        _ => Duration::ZERO,
    };
    let dialogue = Dialogue {
        rest: all.collect(),
        think,
        stagger: Duration::from_secs_f64(case.delay_ms / 1e3),
        counts_once: behind != Behind::Nothing,
    };
    Ok((first, dialogue))
}

/// How many bytes the last request of a dialogue has.
pub(super) fn bytes(behind: Behind) -> usize {
    match behind {
        Behind::Nothing => 120,
        Behind::Orchestrate => 116,
        Behind::Await => 104,
    }
}
