//! A daemon that lets GPU training follow surplus energy.
