//! The flows of a campaign: through a store, a topic, a broker and databases, and back to the
//! receiver.

const FLOWS: &str = include_str!("../../campaign/flows.yaml");

/// Where the flows find what is around them.
pub struct Around {
    pub port: u16,
    pub receiver: u16,
    pub broker: String,
    pub postgres: String,
    pub mariadb: String,
}

/// The file; a number makes its flows other ones.
pub fn text(around: &Around, number: u64) -> String {
    FLOWS
        .replace("@PORT@", &around.port.to_string())
        .replace(
            "@RECEIVER@",
            &format!("http://127.0.0.1:{}", around.receiver),
        )
        .replace("@BROKER@", &around.broker)
        .replace("@POSTGRES@", &around.postgres)
        .replace("@MARIADB@", &around.mariadb)
        .replace("@NUMBER@", &number.to_string())
}
