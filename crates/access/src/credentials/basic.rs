//! A user and a password in Base64 (RFC 7617).

use std::fmt;

use base64ct::{Base64, Encoding as _};

use super::Problem;

/// The most bytes of user, colon and password. It is a multiple of 3: as long as Base64 has no
/// padding.
pub const BASIC_MAX: usize = 1200;

/// A user and a password as they were sent. What is shown of it tells neither.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Basic<'a>(&'a [u8]);

/// Room to decode in, so that passwords are copied nowhere else.
pub struct BasicBuffer([u8; BASIC_MAX]);

/// A user and a password. They are bytes: clients may have sent another encoding than UTF-8, which
/// then is nobody's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UserPassword<'a> {
    /// What stands before the first colon.
    pub user: &'a [u8],
    /// Everything behind it.
    pub password: &'a [u8],
}

impl Default for BasicBuffer {
    fn default() -> Self {
        Self([0; BASIC_MAX])
    }
}

impl fmt::Debug for BasicBuffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("BasicBuffer")
    }
}

impl fmt::Debug for Basic<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Basic")
    }
}

impl fmt::Debug for UserPassword<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("UserPassword")
    }
}

impl<'a> Basic<'a> {
    /// User and password as they stand behind `Basic`, in Base64.
    #[must_use]
    pub fn new(encoded: &'a [u8]) -> Self {
        Self(encoded)
    }

    /// As they were sent.
    #[must_use]
    pub fn encoded(&self) -> &'a [u8] {
        self.0
    }

    /// Takes it apart.
    ///
    /// # Errors
    /// [`Problem::Malformed`] for what is no Base64 with padding, has no colon, or has control
    /// characters (RFC 7617, section 2); [`Problem::TooLong`] for more than [`BASIC_MAX`] bytes.
    pub fn decode<'b>(&self, buffer: &'b mut BasicBuffer) -> Result<UserPassword<'b>, Problem> {
        if self.0.len() > BASIC_MAX / 3 * 4 {
            return Err(Problem::TooLong);
        }
        let decoded = Base64::decode(self.0, &mut buffer.0).map_err(|_| Problem::Malformed)?;
        if decoded.iter().any(u8::is_ascii_control) {
            return Err(Problem::Malformed);
        }
        let colon = decoded.iter().position(|&it| it == b':');
        let (user, rest) = decoded.split_at(colon.ok_or(Problem::Malformed)?);
        let password = rest.get(1..).unwrap_or_default();
        Ok(UserPassword { user, password })
    }
}
