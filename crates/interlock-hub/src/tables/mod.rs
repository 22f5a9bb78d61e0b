//! State tables, and writes to tables that a node's event loop owns.
//!
//! A module imports only modules above it in this table.
//!
//! | module | responsibility |
//! |---|---|
//! | [`writes`] | writes for the event loop, and their answers |
//! | [`keeper`] | calls of NODE for the node's keeper, and their answers |
//! | [`served`] | the tables that this hub serves |
//! | [`reply_order`] | replies of one connection, in the order of its writes |

pub mod keeper;
pub mod reply_order;
pub mod served;
pub mod writes;
