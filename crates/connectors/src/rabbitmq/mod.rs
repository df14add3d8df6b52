//! RabbitMQ and other brokers of AMQP 0-9-1.

pub mod connection;
pub mod publish;
