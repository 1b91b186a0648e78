//! What goes over the wire: method, address, headers and body of every request, and what every answer means.

#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod client;
#[cfg(test)]
mod events;
#[cfg(test)]
mod eviction;
#[cfg(test)]
mod latest_pods;
#[cfg(test)]
mod lease;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod node_object;
#[cfg(test)]
mod nodes;
#[cfg(test)]
mod preflight;
#[cfg(test)]
mod saved;
#[cfg(test)]
mod server;
#[cfg(test)]
mod sharing;
#[cfg(test)]
mod view;
