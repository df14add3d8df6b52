//! What the flows of the suite are sent, what they answer and what they put into the queue. The
//! flows themselves are in `peers/glu`.

use super::super::body::{Bodies, Expected};

/// An order with four lines; prices are in cents. Its number is replaced in each request.
const ORDER: &str = concat!(
    r#"{"id":10000000,"customer":42,"channel":"web","placedAt":"2026-03-14T09:26:53Z","lines":["#,
    r#"{"sku":"KB-1042","name":"Mechanical keyboard","qty":1,"price":12950},"#,
    r#"{"sku":"MS-2210","name":"Wireless mouse","qty":2,"price":3975},"#,
    r#"{"sku":"HB-0007","name":"USB-C hub, 7 ports","qty":1,"price":5425},"#,
    r#"{"sku":"CB-0315","name":"Cable 2 m","qty":4,"price":850}],"#,
    r#""note":"Leave it with the porter, ring twice, and call ahead when you are late."}"#,
);

/// What is made of it.
const RESULT: &str = concat!(
    r#"{"id":10000000,"customer":"Customer 42","tier":"gold","total":29725,"status":"accepted","#,
    r#""priced":4,"available":["KB-1042","MS-2210","HB-0007","CB-0315"]}"#,
);

/// How long the order is.
pub(crate) const ORDER_BYTES: usize = ORDER.len();

/// The bodies of a flow that puts messages into a queue.
pub(super) struct Flow {
    /// Requests and replies.
    pub http: Bodies,
    /// What is in the queue.
    pub queued: Expected,
}

/// A body of so many bytes that is queued as it is, and a note that it is there.
///
/// # Errors
/// When the size is too small.
pub(super) fn straight(bytes: usize) -> anyhow::Result<Flow> {
    let mut body = Bodies::new(bytes, false)?;
    let sent = String::from_utf8_lossy(body.sent.with(0)).into_owned();
    let reply = r#"{"id":10000000,"queued":true}"#.to_owned();
    Ok(Flow {
        http: Bodies::json(sent.clone(), reply),
        queued: Bodies::json(String::new(), sent).expected,
    })
}

/// An order, and what is answered and queued of it.
pub(super) fn order() -> Flow {
    Flow {
        http: Bodies::json(ORDER.to_owned(), RESULT.to_owned()),
        queued: Bodies::json(String::new(), RESULT.to_owned()).expected,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_result_is_what_the_flows_compute() {
        let [order, result] = [ORDER, RESULT].map(|text| {
            let value: Value = serde_json::from_str(text).unwrap();
            value
        });
        let lines = order["lines"].as_array().unwrap();
        let price = |line: &Value| line["qty"].as_u64().unwrap() * line["price"].as_u64().unwrap();
        let total: u64 = lines.iter().map(price).sum();
        assert_eq!(result["total"], total);
        let skus: Vec<&Value> = lines.iter().map(|line| &line["sku"]).collect();
        assert_eq!(
            result["available"]
                .as_array()
                .unwrap()
                .iter()
                .collect::<Vec<_>>(),
            skus
        );
        assert_eq!(result["priced"], lines.len());
        assert_eq!(result["id"], order["id"]);
    }

    #[test]
    fn what_is_queued_has_the_number_that_was_sent() {
        for mut flow in [straight(256).unwrap(), straight(1024).unwrap(), order()] {
            let sent = flow.http.sent.with(77).to_vec();
            assert_eq!(super::super::super::body::number(&sent), Some(77));
            let queued = flow.queued.with(77).to_vec();
            assert!(flow.queued.is(77, &queued));
            assert!(!flow.queued.is(78, &queued));
            let reply = flow.http.expected.with(77).to_vec();
            assert_eq!(super::super::super::body::number(&reply), Some(77));
        }
        assert!(straight(5).is_err());
    }
}
