//! The rules of the queue plane one by one, and all of them against a model.

mod copies;
mod decoding;
mod fixture;
mod leadership;
mod managing;
mod model;
mod nodes;
mod once;
mod ordering;
mod ordering_random;
mod ordering_steps;
mod ordering_times;
mod random;
mod routed_once;
mod routing;
mod routing_random;
mod rules;
mod scheduled;
mod settling;
mod takeover;
mod timetable;
