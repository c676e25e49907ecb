//! What the server tells about itself to those who watch it: metrics and traces.

mod cluster;
mod collector;
mod histograms;
mod queues;
mod reference;
mod scrape;
mod traces;
