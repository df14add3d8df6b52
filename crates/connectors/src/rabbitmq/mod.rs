//! RabbitMQ and other brokers of AMQP 0-9-1.

pub mod connection;
mod consumers;
mod dial;
mod driver;
mod hub;
mod outgoing;
mod parts;
pub mod publish;
mod publishers;
pub mod request;
pub mod source;
mod state;
mod take;
mod topology;
