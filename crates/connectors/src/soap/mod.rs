//! SOAP services that a WSDL file describes.

pub mod connection;
pub mod step;
