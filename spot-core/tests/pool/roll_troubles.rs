//! Anything that can go wrong in a roll, at any call: the promises hold after every single call, every roll ends, and in
//! the end the pool is replaced.
