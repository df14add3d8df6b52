//! What logs must not show: PINs, and the number of the subscriber. A failure of an expression may
//! quote the values that it was about.

use std::borrow::Cow;

use component::exchange::Exchange;
use message::Fault;

use crate::plan::Plan;

/// What stands in place of such a value.
const MASK: &str = "***";
/// The shortest value that is looked for.
const LENGTH_MIN: usize = 3;

/// A text without the PINs of a message and the number of its subscriber.
pub(crate) fn masked<'t>(text: &'t str, plan: &Plan, exchange: &Exchange) -> Cow<'t, str> {
    let slots = plan.slots.secret.iter().chain([&plan.slots.msisdn]);
    let mut masked = Cow::Borrowed(text);
    for slot in slots {
        let value = exchange.slot(*slot);
        let Some(value) = expr::value::scalar_text(&value) else {
            continue;
        };
        // A number may stand there without its sign.
        let value = value.trim_start_matches('+');
        if value.len() >= LENGTH_MIN && masked.contains(value) {
            masked = Cow::Owned(masked.replace(value, MASK));
        }
    }
    masked
}

/// A failure that leaves the menu, without such values in its cause.
pub(crate) fn masked_fault(mut fault: Fault, plan: &Plan, exchange: &Exchange) -> Fault {
    let cause = fault.cause.as_deref();
    let cause = cause.map(|it| masked(it, plan, exchange).into_owned());
    fault.cause = cause.map(Into::into);
    fault
}
