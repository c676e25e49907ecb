//! The rules of the queue plane one by one, and all of them against a model.

mod decoding;
mod fixture;
mod leadership;
mod managing;
mod model;
mod once;
mod random;
mod routing;
mod routing_random;
mod rules;
mod settling;
