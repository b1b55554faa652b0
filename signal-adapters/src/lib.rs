//! Sources of energy signals, one file each, and the wire form they share.
