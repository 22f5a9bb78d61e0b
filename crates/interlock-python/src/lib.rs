//! The native module of Interlock. It converts arguments, waits without the GIL, and calls the core.
//!
//! All calls into the core are made with the GIL held, waits alone without it. So payloads enter and
//! leave a queue only under the GIL (the garbage collector, which holds it, sees each of them in
//! exactly one place), nobody waits for the GIL under the core's lock, and at a fork the lock is free.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

mod aio;
mod arguments;
mod batch;
mod blocked;
mod call;
mod clock;
mod convert;
mod coroutine;
mod deadlock;
mod engine;
mod errors;
mod events;
mod exit;
mod explanation;
mod fork;
mod future;
mod future_methods;
mod gil;
mod hot;
mod hub;
mod hub_keeper;
mod hub_settings;
mod hub_stores;
mod hub_tables;
mod journal_copy;
mod judgement;
mod lease;
mod lease_batch;
#[cfg(target_os = "linux")]
mod log_bridge;
#[cfg(target_os = "linux")]
mod log_node;
#[cfg(target_os = "linux")]
mod log_rows;
#[cfg(target_os = "linux")]
mod log_states;
mod many;
mod messages;
mod named;
mod named_batch;
mod nesting;
mod once;
mod queue;
mod queue_operate;
mod recycle;
mod renewals;
mod store_files;
#[cfg(target_os = "linux")]
mod table;
mod wait;
mod work;

// As PyO3 takes modules to need no GIL unless they say so.
#[pymodule(gil_used = true)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    static LOADED: AtomicBool = AtomicBool::new(false);
    if LOADED.swap(true, Relaxed) {
        return Err(PyImportError::new_err(
            "interlock is loaded once in a process: not in a second interpreter, and not again \
             when it was taken out of sys.modules",
        ));
    }
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("DEBUG_BUILD", cfg!(debug_assertions))?;
    module.add_class::<clock::ManualClock>()?;
    module.add_class::<clock::WallClock>()?;
    module.add_class::<queue::Queue>()?;
    let py = module.py();
    module.add("Lease", lease::LEASES.class(&py.get_type::<lease::Lease>())?)?;
    module.add("AsyncLease", aio::LEASES.class(&py.get_type::<aio::AsyncLease>())?)?;
    module.add_class::<lease_batch::LeaseBatch>()?;
    module.add_class::<lease_batch::AsyncLeaseBatch>()?;
    module.add_class::<aio::AsyncFace>()?;
    module.add_class::<aio::Waiter>()?;
    module.add_class::<aio::Done>()?;
    module.add_class::<batch::Batch>()?;
    module.add_class::<future::Future>()?;
    module.add_class::<hub::HubServer>()?;
    module.add_class::<hub_tables::HubTables>()?;
    module.add_class::<hub_keeper::TableKeeper>()?;
    module.add_class::<store_files::StoreFiles>()?;
    module.add_class::<journal_copy::JournalCopy>()?;
    module.add_class::<renewals::LeaseRenewals>()?;
    module.add_class::<engine::Engine>()?;
    module.add_class::<engine::EngineRenewals>()?;
    module.add("EngineError", module.py().get_type::<engine::EngineError>())?;
    module.add_function(wrap_pyfunction!(work::run_worker, module)?)?;
    module.add_function(wrap_pyfunction!(work::call_handler, module)?)?;
    module.add_function(wrap_pyfunction!(work::end_call, module)?)?;
    module.add_function(wrap_pyfunction!(work::current_grant, module)?)?;
    module.add_function(wrap_pyfunction!(hot::quicken, module)?)?;
    module.add_function(wrap_pyfunction!(fork::forked, module)?)?;
    module.add_function(wrap_pyfunction!(convert::canonical, module)?)?;
    module.add_function(wrap_pyfunction!(convert::canonical_keys, module)?)?;
    module.add_function(wrap_pyfunction!(explanation::replay, module)?)?;
    #[cfg(target_os = "linux")]
    {
        module.add_class::<log_bridge::LogBridge>()?;
        module.add_class::<log_node::LogNode>()?;
        module.add_class::<log_rows::BroughtRows>()?;
        module.add_class::<log_rows::RowsImage>()?;
        module.add_class::<log_rows::RowsIterator>()?;
        module.add_class::<log_states::StateRules>()?;
        module.add("Table", table::entries::class(py)?)?;
        module.add_class::<table::export::TableExport>()?;
        module.add_class::<table::scan::TableScan>()?;
        module.add_function(wrap_pyfunction!(table::whole::remove_table, module)?)?;
    }
    once::make_early(py)?;
    hot::install(py)
}
