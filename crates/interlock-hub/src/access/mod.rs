//! Users, their connections, and what was denied.
//!
//! A module imports only modules above it in this table.
//!
//! | module | responsibility |
//! |---|---|
//! | [`users`] | rights of users |
//! | [`registry`] | what connections may know of each other: CLIENT LIST, CLIENT KILL |
//! | [`denials`] | calls that were refused, and to whom: ACL LOG |

pub mod denials;
pub mod registry;
pub mod users;
