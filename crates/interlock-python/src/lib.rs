//! The native module of Interlock. It converts arguments, waits without the GIL, and calls the core.
//!
//! All calls into the core are made with the GIL held, waits alone without it. So payloads enter and
//! leave a queue only under the GIL (the garbage collector, which holds it, sees each of them in
//! exactly one place), nobody waits for the GIL under the core's lock, and at a fork the lock is free.
//!
//! | module | responsibility |
//! |---|---|
//! | `runtime` | GIL, forks, exit, clocks, errors, conversions |
//! | `queue` | KeyedQueue and its leases |
//! | `asyncio` | the same for event loops |
//! | `executor` | worker threads and futures |
//! | `fast` | quick entries for the usual calls |
//! | `engine` | queues of `memory://`; files of journals and stores |
//! | `hub`, `cluster` | the hub; nodes of the state table |
//! | `table` | SharedTable |

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

mod asyncio;
#[cfg(target_os = "linux")]
mod cluster;
mod engine;
mod executor;
mod fast;
mod hub;
mod queue;
mod runtime;
#[cfg(target_os = "linux")]
mod table;

// As PyO3 takes modules to need no GIL unless they say so.
#[pymodule(gil_used = true)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    static LOADED: AtomicBool = AtomicBool::new(false);
    if LOADED.swap(true, Relaxed) {
        return Err(PyImportError::new_err(
            "interlock can be loaded only once in a process: not in a second interpreter, and \
             not again after its removal from sys.modules",
        ));
    }
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("DEBUG_BUILD", cfg!(debug_assertions))?;
    module.add_class::<runtime::clock::ManualClock>()?;
    module.add_class::<runtime::clock::WallClock>()?;
    module.add_class::<queue::Queue>()?;
    let py = module.py();
    module.add("Lease", queue::lease::LEASES.class(&py.get_type::<queue::lease::Lease>())?)?;
    module.add(
        "AsyncLease",
        asyncio::aio::LEASES.class(&py.get_type::<asyncio::aio::AsyncLease>())?,
    )?;
    module.add_class::<queue::lease_batch::LeaseBatch>()?;
    module.add_class::<queue::lease_batch::AsyncLeaseBatch>()?;
    module.add_class::<asyncio::aio::AsyncFace>()?;
    module.add_class::<asyncio::aio::Waiter>()?;
    module.add_class::<asyncio::aio::Done>()?;
    module.add_class::<queue::batch::Batch>()?;
    module.add_class::<executor::future::Future>()?;
    module.add_class::<hub::HubServer>()?;
    module.add_class::<hub::tables::HubTables>()?;
    module.add_class::<hub::keeper::TableKeeper>()?;
    module.add_class::<engine::store_files::StoreFiles>()?;
    module.add_class::<engine::journal_copy::JournalCopy>()?;
    module.add_class::<engine::renewals::LeaseRenewals>()?;
    module.add_class::<engine::Engine>()?;
    module.add_class::<engine::EngineRenewals>()?;
    module.add("EngineError", module.py().get_type::<engine::EngineError>())?;
    module.add_function(wrap_pyfunction!(executor::work::run_worker, module)?)?;
    module.add_function(wrap_pyfunction!(executor::work::call_handler, module)?)?;
    module.add_function(wrap_pyfunction!(executor::work::end_call, module)?)?;
    module.add_function(wrap_pyfunction!(executor::work::current_grant, module)?)?;
    module.add_function(wrap_pyfunction!(fast::quicken, module)?)?;
    module.add_function(wrap_pyfunction!(runtime::fork::forked, module)?)?;
    module.add_function(wrap_pyfunction!(runtime::convert::canonical, module)?)?;
    module.add_function(wrap_pyfunction!(runtime::convert::canonical_keys, module)?)?;
    module.add_function(wrap_pyfunction!(queue::explanation::replay, module)?)?;
    #[cfg(target_os = "linux")]
    {
        module.add_class::<cluster::bridge::LogBridge>()?;
        module.add_class::<cluster::node::LogNode>()?;
        module.add_class::<cluster::outside_rows::BroughtRows>()?;
        module.add_class::<cluster::outside_rows::LinkReport>()?;
        module.add_class::<cluster::outside_rows::RowsImage>()?;
        module.add_class::<cluster::outside_rows::RowsIterator>()?;
        module.add_class::<cluster::states::StateRules>()?;
        module.add("Table", table::entries::class(py)?)?;
        module.add_class::<table::export::TableExport>()?;
        module.add_class::<table::scan::TableScan>()?;
        module.add_function(wrap_pyfunction!(table::admin::remove_table, module)?)?;
    }
    runtime::once::make_early(py)?;
    fast::install(py)
}
