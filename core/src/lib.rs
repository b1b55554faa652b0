//! Everything the daemon decides. Pure: events and time go in, actions come out.
