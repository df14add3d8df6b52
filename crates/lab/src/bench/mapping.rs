//! The mapping that engines are compared by: an order of 1 KiB becomes an object of ten fields, by
//! plain paths, or with some of them computed. One table gives the program in each language, so
//! that all do the same.

use std::fmt::Write;

use super::body::Bodies;
use super::scenario::Work;

/// The size of the order.
pub(crate) const BYTES: usize = 1024;

/// The order; its number is replaced in each request.
const ORDER: &str = concat!(
    r#"{"order":{"id":10000000,"reference":"PO-2026-118","placedAt":"2026-03-14T09:26:53Z","#,
    r#""channel":"web","priority":2,"gift":false},"customer":{"number":48213,"#,
    r#""name":"Ada Lovelace","email":"ada.lovelace@example.com","phone":"+44 20 7946 0000","#,
    r#""tier":"gold","newsletter":true},"delivery":{"method":"express","address":{"#,
    r#""street":"12 St James's Square","city":"London","postcode":"SW1Y 4JH","country":"GB"}},"#,
    r#""payment":{"method":"card","currency":"GBP","paid":true,"authorisation":"7f3a91c2"},"#,
    r#""lines":[{"sku":"KB-1042","name":"Mechanical keyboard","qty":1,"price":129.5},"#,
    r#"{"sku":"MS-2210","name":"Wireless mouse","qty":2,"price":39.75},"#,
    r#"{"sku":"HB-0007","name":"USB-C hub, 7 ports","qty":1,"price":54.25},"#,
    r#"{"sku":"CB-0315","name":"Cable 2 m","qty":4,"price":8.5},"#,
    r#"{"sku":"ST-0901","name":"Laptop stand","qty":1,"price":44.25},"#,
    r#"{"sku":"PD-0118","name":"Desk pad","qty":1,"price":19.75}],"#,
    r#""note":"Leave it with the porter, ring twice, and call ahead when you are later than "#,
    r#"six o'clock; the parcel is too heavy for one of them to carry up."}"#,
);

/// What the plain paths make of it.
const PLAIN_REPLY: &str = concat!(
    r#"{"id":10000000,"reference":"PO-2026-118","placedAt":"2026-03-14T09:26:53Z","#,
    r#""gift":false,"customer":"Ada Lovelace","email":"ada.lovelace@example.com","#,
    r#""address":{"street":"12 St James's Square","city":"London","postcode":"SW1Y 4JH","#,
    r#""country":"GB"},"currency":"GBP","paid":true,"note":"Leave it with the porter, "#,
    r#"ring twice, and call ahead when you are later than six o'clock; the parcel is too "#,
    r#"heavy for one of them to carry up."}"#,
);

/// What the computing mapping makes of it.
const COMPUTED_REPLY: &str = concat!(
    r#"{"id":10000000,"reference":"PO-2026-118","placedAt":"2026-03-14T09:26:53Z","#,
    r#""gift":false,"customer":"ADA LOVELACE","email":"ada.lovelace@example.com","#,
    r#""country":"GB","total":361.25,"skus":["KB-1042","MS-2210","HB-0007","CB-0315","#,
    r#""ST-0901","PD-0118"],"label":"web/express"}"#,
);

/// A field of the mapped object, in the languages of the engines.
#[derive(Clone, Copy)]
struct Field {
    name: &'static str,
    jq: &'static str,
    bloblang: &'static str,
}

/// A field that is copied: the languages differ in the name of the document only.
macro_rules! copied {
    ($name:literal, $path:literal) => {
        Field {
            name: $name,
            jq: $path,
            bloblang: concat!("this", $path),
        }
    };
}

const PLAIN: [Field; 10] = [
    copied!("id", ".order.id"),
    copied!("reference", ".order.reference"),
    copied!("placedAt", ".order.placedAt"),
    copied!("gift", ".order.gift"),
    copied!("customer", ".customer.name"),
    copied!("email", ".customer.email"),
    copied!("address", ".delivery.address"),
    copied!("currency", ".payment.currency"),
    copied!("paid", ".payment.paid"),
    copied!("note", ".note"),
];

const COMPUTED: [Field; 10] = [
    copied!("id", ".order.id"),
    copied!("reference", ".order.reference"),
    copied!("placedAt", ".order.placedAt"),
    copied!("gift", ".order.gift"),
    Field {
        name: "customer",
        jq: "(.customer.name | ascii_upcase)",
        bloblang: "this.customer.name.uppercase()",
    },
    copied!("email", ".customer.email"),
    copied!("country", ".delivery.address.country"),
    Field {
        name: "total",
        jq: "([.lines[] | .qty * .price] | add)",
        bloblang: "this.lines.map_each(line -> line.qty * line.price).sum()",
    },
    Field {
        name: "skus",
        jq: "[.lines[].sku]",
        bloblang: "this.lines.map_each(line -> line.sku)",
    },
    Field {
        name: "label",
        jq: "(.order.channel + \"/\" + .delivery.method)",
        bloblang: "this.order.channel + \"/\" + this.delivery.method",
    },
];

fn fields(work: Work) -> &'static [Field] {
    match work {
        Work::Map => &PLAIN,
        Work::Compute => &COMPUTED,
        _ => &[],
    }
}

/// The mapping as jq.
pub(crate) fn jq(work: Work) -> String {
    let mut text = String::from("{\n");
    for field in fields(work) {
        // invariant: writing to a String does not fail.
        let _ = writeln!(text, "  {}: {},", field.name, field.jq);
    }
    let end = text.trim_end_matches([',', '\n']).len();
    text.truncate(end);
    text.push_str("\n}");
    text
}

/// The mapping as Bloblang.
pub(crate) fn bloblang(work: Work) -> String {
    let lines = fields(work).iter();
    let lines = lines.map(|field| format!("root.{} = {}", field.name, field.bloblang));
    lines.collect::<Vec<_>>().join("\n")
}

/// The order, and what must come back: the mapped object, or the order as it is.
pub(crate) fn bodies(work: Work) -> Bodies {
    let reply = match work {
        Work::Map => PLAIN_REPLY,
        Work::Compute => COMPUTED_REPLY,
        _ => ORDER,
    };
    Bodies::json(ORDER.to_owned(), reply.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn value(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn the_order_has_its_size() {
        assert_eq!(ORDER.len(), BYTES);
        assert_eq!(ORDER.matches("10000000").count(), 1);
        assert!(value(ORDER).is_object());
    }

    #[test]
    fn copied_fields_are_where_the_path_says() {
        let order = value(ORDER);
        for (fields, reply) in [(PLAIN, PLAIN_REPLY), (COMPUTED, COMPUTED_REPLY)] {
            let reply = value(reply);
            let reply = reply.as_object().unwrap();
            let names: Vec<&str> = reply.keys().map(String::as_str).collect();
            assert_eq!(names, fields.map(|field| field.name));
            for field in fields.iter().filter(|it| it.jq.starts_with('.')) {
                let pointer = field.jq.replace('.', "/");
                assert_eq!(
                    order.pointer(&pointer),
                    reply.get(field.name),
                    "{}",
                    field.jq
                );
            }
        }
    }

    #[test]
    fn computed_fields_are_what_they_say() {
        let (order, reply) = (value(ORDER), value(COMPUTED_REPLY));
        let lines = order["lines"].as_array().unwrap();
        let price = |line: &Value| line["qty"].as_f64().unwrap() * line["price"].as_f64().unwrap();
        assert_eq!(reply["total"].as_f64(), Some(lines.iter().map(price).sum()));
        let skus: Vec<&Value> = lines.iter().map(|line| &line["sku"]).collect();
        assert_eq!(
            reply["skus"].as_array().unwrap().iter().collect::<Vec<_>>(),
            skus
        );
        let name = order["customer"]["name"].as_str().unwrap();
        assert_eq!(reply["customer"], name.to_ascii_uppercase());
        assert_eq!(reply["label"], "web/express");
    }

    #[test]
    fn programs_have_all_fields() {
        assert!(jq(Work::Map).starts_with("{\n  id: .order.id,\n  reference: .order.reference,\n"));
        assert!(jq(Work::Map).ends_with("  note: .note\n}"));
        let text = bloblang(Work::Compute);
        assert!(text.starts_with("root.id = this.order.id\n"), "{text}");
        assert_eq!(text.lines().count(), 10);
        assert!(jq(Work::Compute).contains("  total: ([.lines[] | .qty * .price] | add),\n"));
    }
}
