//! SOAP services that a WSDL file describes.

pub mod connection;
pub mod endpoint;
pub mod envelope;
pub mod names;
pub mod problem;
pub mod reply;
pub mod security;
pub mod step;
pub mod wsdl;
pub mod xsd;
