//! What opens the doors of `doors.yaml`.

/// The secret of the issuer, of signed bodies, and of the server that is asked about tokens.
pub const SECRET: &str = "a secret of the issuer that has more than 32 bytes";

/// The head and claims of a token that is good until 2100: `iss`, `aud` and `sub`.
pub const SIGNED: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.\
                          eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUiLCJhdWQiOi\
                          Jkb29ycyIsInN1YiI6ImFubiIsImV4cCI6NDEwMjQ0NDgwMH0";

/// A header line with that token.
pub const TOKEN: &str = "Authorization: Bearer eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.\
                         eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUiLCJhdWQiOiJkb29y\
                         cyIsInN1YiI6ImFubiIsImV4cCI6NDEwMjQ0NDgwMH0.\
                         hJe7YDCgGBN-mQBSAaYiRMxa85QCc9ecX7ExSfVqPfY\r\n";

/// A header line with an API key.
pub const KEY: &str = "X-Api-Key: itk_0123456789abcdefghijklmnopqrstuvwxyz\r\n";

/// The file of keys that has its hash.
pub const KEYS: &str = "{\"id\":\"shop\",\"hash\":\"sha256:\
                        e0950409ff74b4e7933667792b4fc168a0e4bc4a0dadb4c947f9aa89172277ad\"}\n";

/// The file of users: `correct horse`.
pub const USERS: &str = "ann:$2y$05$abcdefghijklmnopqrstuuHNbAKRhpaujgo33bRWs.NLUTJO3lOy2\n";

/// The name and value of a header line, the name in lower case.
pub fn field(line: &str) -> Option<(String, &str)> {
    let (name, value) = line.trim_end().split_once(": ")?;
    Some((name.to_ascii_lowercase(), value))
}
