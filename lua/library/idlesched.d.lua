-- SPDX-License-Identifier: MIT
---@meta idlesched

-- What `require "idlesched"` returns, for editors and for people.  Times are seconds
-- (integer or float), sizes are bytes.  Misuse raises at the caller; expected outcomes
-- are nil and a fixed string; what the system refuses is nil, message, errno.

---@class idlesched
---@field _VERSION string "idlesched 0.1.0"
local idlesched = {}

---Make a pool of workers. No thread is started before the first job.
---@param options? idlesched.PoolOptions
---@return idlesched.Pool? pool
---@return string? message
---@return integer? errno
---@nodiscard
function idlesched.pool(options) end

---While the guard is held, freed memory goes back to the system at once. Guards count:
---the last one that ends puts the allocator's own delay back. Allocation and free are
---up to 19 times slower inside. Without mimalloc it does nothing.
---@return idlesched.Guard
---@nodiscard
function idlesched.eager_purge() end

---Release now, in every pool of the process or in some: collects this Lua state, has every
---worker that has a thread tidy its heap and Lua state, and purges, also while a guard is
---held; the C library's heap is trimmed. Starts no thread, runs no job. In a job its own
---worker counts as the caller. Waits for busy workers, by default for 1 s in all.
---@param options? { timeout?: number|false, pools?: idlesched.Pool[] } seconds; a list, in order
---@return idlesched.ReleaseReport? report
---@return string? message
---@return integer? errno
function idlesched.release(options) end

---Give back what is free now in the whole process, down to the smallest range; visits no
---worker. Collects this Lua state first.
---@return idlesched.ReleaseReport
function idlesched.purge_all() end

---Why is my memory not back? In words, for people: where the process's memory is, a line for
---each reason that keeps some of it, and who holds options. Of the pools it knows those of the
---calling Lua state: in a job, not those of the script. Takes as long as idlesched.memory().
---@return string? text nil where the system does not tell
---@return string? message
---@return integer? errno
function idlesched.explain() end

---While the guard is held, an option of the allocator has another value: of several guards
---the one that was made last decides; the last one that ends puts back what was there. Raises
---for a name or a value that cannot be, and says why. Without mimalloc it does nothing.
---  purge_delay     ms until what is free goes back; 0: at once
---  purge_min_size  KiB, the smallest range that goes back
---  purge_mult      how many times the delay an arena waits
---The last two are left alone where the user has set them, the first where it is 0 or below. The
---user sets them in the environment, before the process starts:
---  MIMALLOC_PURGE_DELAY=500                ms; -1 switches purging off
---  MIMALLOC_ARENA_PURGE_MIN_SIZE=128KiB    a plain number is bytes there: 64 would be 1 KiB
---  MIMALLOC_ARENA_PURGE_MULT=2
---@param name "purge_delay"|"purge_min_size"|"purge_mult"
---@param value integer
---@return idlesched.Guard
---@nodiscard
function idlesched.option(name, value) end

---The options that can be overridden, and by whom they are now, in the whole process. Empty
---without mimalloc.
---@return idlesched.Option[]
---@nodiscard
function idlesched.options() end

---Whether the allocator has huge pages, which are off by default. "keep": let it have them,
---and split at each purge those of which a part is free, so that what is given back is really
---free. Holds for the process, from now on, and cannot be taken back. For heaps that are nearly
---empty between bursts. A user's own MIMALLOC_ALLOW_THP=1 is the same as calling it.
---@param mode? "keep"
---@return "keep"|"off"|nil mode as it is now; nil: the system or the user has none to keep
---@return string? message
---@return integer? errno
function idlesched.huge_pages(mode) end

---Release every pool at once when the kernel says that memory is short: when threads of the
---process's cgroup, or of the system, stall for it. One watcher for the process; it has a
---thread that sleeps until then.
---@param options? idlesched.WatcherOptions
---@return idlesched.Watcher? watcher
---@return string? message "already watched", or why not: the kernel may have none of it
---@return integer? errno
---@nodiscard
function idlesched.watch_pressure(options) end

---The calling thread is about to be idle: release what its heap has cached.
function idlesched.thread_idle() end

---In a job: its worker takes no further job, and when this one has ended it closes its Lua
---state and ends its thread. A new worker takes its place when there is more to do. Raises
---outside a job.
function idlesched.retire() end

---What the process has in memory now, by the kernel and by allocator; tostring() says it in
---words. Takes 0.3 to 0.5 ms with 8 idle workers: the kernel walks the page tables.
---@return idlesched.Memory? memory nil where the system does not tell
---@return string? message
---@return integer? errno
function idlesched.memory() end

---In a job: the pool that it runs in, to submit more to it, and to wait for that: the worker
---runs the awaited job itself if nobody has begun it. Waiting in a circle is nil, "deadlock".
---Outside of a job nil.
---@return idlesched.Pool?
function idlesched.current_pool() end

---In a job: call fn, which is about to block, on a system call, say. Until it returns the pool
---may have one more worker in this one's place. Outside of a job it only calls. fn cannot yield.
---@param fn function
---@param ... any
---@return any ... what fn returns
function idlesched.blocking(fn, ...) end

---In a job: whether it was asked to stop, by its handle or its token. Ask between two steps of
---something long. Outside of a job false.
---@return boolean
function idlesched.cancelled() end

---A token, to be given to any number of jobs of any pools, and to cancel them all.
---@return idlesched.Token? token
---@return string? message
---@return integer? errno
---@nodiscard
function idlesched.token() end

---Wait for all of these jobs, within one time limit.
---@param jobs idlesched.Job[]
---@param timeout? number seconds; nil waits for ever
---@return true? ok they have ended, in whatever way
---@return "timeout"|"deadlock"|nil reason
function idlesched.wait_all(jobs, timeout) end

---CPUs that this process may use, at least 1: by affinity, or by the smallest quota of its
---cgroups and those above them, rounded up, whichever is fewer. Reads the kernel's files.
---@return integer
function idlesched.cpus() end

---Seconds on a monotonic clock.
---@return number
function idlesched.now() end

---Block the calling thread.
---@param seconds number
function idlesched.sleep(seconds) end

---Whether a value is an error object of this module.
---@param value any
---@return boolean
function idlesched.is_error(value) end

---Name and version of the allocator: "mimalloc 3.6.0", or "system".
---@return string
function idlesched.allocator() end

---@class idlesched.PoolOptions
---@field name? string default "pool"; threads carry the first 15 bytes of it
---Most workers that run jobs at a time, up to 1024; default idlesched.cpus(). 0: each job runs
---in the thread that submits it, before submit returns, in a Lua state of its own all the same.
---@field workers? integer
---@field min_workers? integer so many threads do not end after idle_exit; default 0
---Most threads at a time in place of those whose job blocks; default `workers`, 0 = none.
---@field max_blocking? integer
---@field queue_limit? integer most jobs that wait; default no limit
---Seconds that submit waits for room in the queue; default 0: nil, "full" at once; false = no
---limit. A job of the pool runs a waiting job itself instead, to make room.
---@field queue_timeout? number|false
---Bytes of each thread's stack, 64 KiB to 1 GiB; default 1 MiB. Jobs that wait inside each other
---may use half of it: then the wait raises. Below 512 KiB a script that calls itself without end
---through C functions, as string.gsub(), comes to the end of the stack before Lua's own limit of
---200 such calls, and that ends the process.
---@field stack_size? integer
---Called on each worker's thread, in its Lua state, before its first job; when it raises, that
---job fails with an error of kind "start", and the next one tries again. Travels as jobs do.
---@field on_start? function
---The same before that state is closed; an error becomes a warning.
---@field on_stop? function
---The same when the worker is about to release, to drop what the state caches; may be called
---again for the same release, when a job came between. An error becomes a warning.
---@field on_release? function
---Seconds without a job until a worker's memory is released; default 0.1, false = never.
---@field idle_release? number|false
---Seconds without a job until a worker's thread ends; default 10, false = never.
---@field idle_exit? number|false
---Each job has a worker of its own, with a thread and a fresh Lua state, which retires after
---it; no more than `workers` at a time. Default false.
---@field dedicated? boolean

---@class idlesched.Pool
local Pool = {}

---Run fn(...) on a worker. The function travels with its upvalues, by copy; so do the
---arguments and the results. Globals do not: a job sees the standard libraries and what
---it requires, and the globals that earlier jobs have set on that worker. Raises an error
---object of kind "transfer" when a value cannot travel, and then nothing was queued.
---@param fn function
---@param ... any
---@return idlesched.Job? job
---@return "closed"|"full"|string|nil reason
---@return integer? errno
function Pool:submit(fn, ...) end

---@class idlesched.JobOptions
---@field priority? integer -7 to 7, default 0: higher ones begin first; first in, first out inside
---@field delay? number seconds, below 1e9: begun no earlier than so long from now
---Seconds: if it was not begun so long from now, it never is; result() then raises "expired".
---@field expire? number|false
---@field token? idlesched.Token cancels it

---The same with options.
---@param options idlesched.JobOptions
---@param fn function
---@param ... any
---@return idlesched.Job? job
---@return "closed"|"full"|"cancelled"|string|nil reason
---@return integer? errno
function Pool:submit_with(options, fn, ...) end

---Begin no more jobs until resumed; those that run go on, and submit takes jobs in. A job that
---runs still runs another one itself, to wait for it or to make room. Workers are idle
---meanwhile: they release, and their threads end in time. Pauses do not count.
function Pool:pause() end

---End a pause. A close does it as well. When all threads have ended meanwhile, and the system
---refuses a new one, the pool stays paused.
---@return true? ok
---@return string? message
---@return integer? errno
function Pool:resume() end

---From now on so many workers at most. Those that are too many end: at once, or after their job.
---@param workers integer 1 to 1024
---@param min_workers? integer so many threads do not end after idle_exit; default 0
---@return true? ok
---@return "closed"|string|nil reason
---@return integer? errno
function Pool:resize(workers, min_workers) end

---Wait until no job is queued and none is running. True also when jobs have failed: ask
---each job, or stats().jobs.failed.
---@param timeout? number seconds; nil waits for ever
---@return true? ok
---@return "timeout"|"deadlock"|nil reason deadlock: in a job of this pool
function Pool:wait(timeout) end

---Start threads ahead of jobs, until so many workers have one.
---@param count? integer default: all; more than there are workers means all
---@return true? ok
---@return string? reason
---@return integer? errno
function Pool:start_workers(count) end

---Release now: collects this Lua state, has every worker that has a thread tidy its
---heap and Lua state, and purges. Starts no thread, runs no job.
---@param options? { timeout?: number|false } seconds to wait for busy workers, default 1
---@return idlesched.ReleaseReport? report
---@return string? message
---@return integer? errno
function Pool:release(options) end

---One consistent snapshot.
---@return idlesched.PoolStats
function Pool:stats() end

---What each worker does, and what its Lua state has in use.
---@return idlesched.WorkerRow[]
function Pool:workers() end

---Workers that run, or have been told to run. 0 for an idle pool.
---@return integer
function Pool:active() end

---Check the pool's book-keeping while it goes on: every wake is one poll, and workers and
---jobs add up. False only if the library is broken or its memory was overwritten.
---@return boolean ok
---@return idlesched.Finding[]? findings what does not hold
function Pool:audit() end

---Take no more jobs and end all workers. What is still queued at the time limit is
---cancelled. A second close only reports whether threads are left. Also what a <close>
---variable does, with mode "cancel", and the collector.
---Default mode "drain", timeout 2 s; false = no limit.
---@param options? { mode?: "drain"|"cancel", timeout?: number|false }
---@return true? ok
---Reason: some threads still run a job, and leave when it ends; or a job of the pool calls this.
---@return "timeout"|"deadlock"|nil reason
function Pool:close(options) end

---@class idlesched.Job
local Job = {}

---@return "queued"|"running"|"done"|"failed"|"cancelled"
function Job:status() end

---Wait until the job has ended, in whatever way.
---@param timeout? number seconds; nil waits for ever
---@return true? ok
---@return "timeout"|"deadlock"|nil reason deadlock: in a job that it waits for
function Job:wait(timeout) end

---The job is not wanted any more. What waits in the queue ends at once; what runs is asked to
---stop, and decides by idlesched.cancelled().
---@return "cancelled"|"requested"|false false: it had ended
function Job:cancel() end

---What the job returned, as often as you like. Raises its error object, or one of the strings
---"timeout", "cancelled", "expired" and "deadlock".
---@param timeout? number seconds; nil waits for ever
---@return any ...
function Job:result(timeout) end

---The same without raising: true and the results, or nil and the error.
---@param timeout? number seconds; nil waits for ever
---@return true? ok
---@return any ...
function Job:try(timeout) end

---@class idlesched.Token
local Token = {}

---Cancel all jobs that have the token, now and from now on. Looks at every queued job.
---@return integer count of those that waited, and never run
function Token:cancel() end

---@return boolean
function Token:cancelled() end

---@class idlesched.Guard
local Guard = {}

---End it now. It also ends with its <close> variable, when it is collected, and with
---its Lua state; once in all. With the last two it was forgotten: then warn() is told where
---it was made and for how long it was held. A worker's warnings are told by the Lua state
---that made the pool, when it next calls a method of the pool, closes or collects it.
function Guard:close() end

---@class idlesched.Option
---@field name string
---@field value integer now
---@field default integer what the last guard puts back
---@field least integer that a guard may ask for
---@field most integer
---@field overridden boolean whether a guard's value is in force
---@field held integer guards that are held, also those that leave alone what the user set
---@field holders idlesched.OptionHolder[] the latest 16; the first one's value is in force

---@class idlesched.OptionHolder
---@field name string where the guard was made, "script.lua:12"; "?" for C code without a name
---@field since number when, as idlesched.now() tells
---@field value integer that it asked for

---@class idlesched.WatcherOptions
---@field stall? number seconds, above 0, that some thread has stalled; default a tenth of window
---Within so many seconds, 0.5 to 10; default 1. Rounded up to a multiple of 2 where the kernel
---takes no others, and the stall with it.
---@field window? number
---Seconds between two releases as long as the pressure lasts; default 10, false = never again.
---@field cooldown? number|false
---@field timeout? number|false seconds to wait for busy workers at each release; default 1
---@field path? string default: the own cgroup's memory.pressure, else /proc/pressure/memory

---@class idlesched.Watcher
local Watcher = {}

---Watch no more: returns after a release that is under way. It also ends with its <close>
---variable, when it is collected, and with its Lua state.
function Watcher:close() end

---@return idlesched.WatcherStats
function Watcher:stats() end

---@class idlesched.WatcherStats
---@field watching boolean false when it is closed, or the file's cgroup is gone
---@field path? string whose pressure; this one and the next two only while it watches
---@field trigger? boolean the kernel tells; false: the file is read once a window
---@field window? number seconds, as it was rounded
---@field events integer times that the kernel told, at most one in a window
---@field releases integer that followed; the others came within the cooldown
---@field returned integer bytes by which anonymous memory fell in those releases

---@class idlesched.Memory
---@field resident integer bytes of all pages, shared libraries included
---@field anonymous integer bytes of pages that belong to this process alone
---@field huge integer those of them that are huge pages
---@field threads integer threads of the process
---Bytes in blocks of the workers and of the module that were not freed; in the host also those
---of the calling state, as Lua counts them. What else that process takes by malloc() is of the
---same allocator and not known, for a job also the script's state: it looks like free blocks.
---@field live integer
---@field dead integer bytes that workers have made since their last full collection, at most
---Bytes that a release can give back at most, besides garbage of the calling state, which is
---not known before it is collected: free and dead ones. With the user's purge_delay below 0
---only what is free in the C library's heap.
---@field releasable integer
---@field heaps idlesched.HeapMemory[] the allocator of the module, and the C library's beside it

---@class idlesched.HeapMemory
---@field name string "mimalloc 3.6.0", "glibc 2.36"
---@field resident integer bytes of it in memory; of the C library's heap at most
---@field live integer bytes of it in blocks in use
---@field free integer the rest of it

---@class idlesched.WorkerRow
---@field index integer number of the worker, from 1
---@field state "absent"|"starting"|"running"|"parked"|"releasing"|"exiting"
---@field live integer bytes of its Lua state after its last job, or its last step of collection
---@field dead integer those of them that came after its last full collection; 0 after one
---@field released boolean whether it has released since its last job

---What a release has done; tostring() says it in words. A plain table: of one that a job returns,
---or gets, the fields travel, and the words do not.
---@class idlesched.ReleaseReport
---Bytes by which the process's anonymous memory fell, also by the calling state's collection.
---@field returned integer
---@field before integer bytes of anonymous memory before, and before that collection
---@field after integer bytes of anonymous memory after
---@field pools integer pools that were looked at
---@field visited integer workers that have released
---@field missed integer workers that have not; they release when next parked:
---@field missed_running integer they ran a job, or tidied up, or were not awake in time,
---@field missed_starting integer or their thread was starting
---@field missed_exiting integer or ending
---@field kept idlesched.Kept why the rest is still there; the sum of the three is `after`
---@field heaps idlesched.HeapReport[] the allocator, then the C library's beside it
---@field purge_delay integer ms, without guards; 0 or below: the user's will; 0 without mimalloc
---@field lifted_guards boolean overrides were put aside for the purge, and are back
---@field complete boolean whether none was missed
---@field time number seconds that the call took, with that collection
---@field allocator string

---@class idlesched.Kept bytes
---@field live integer blocks in use, as far as they are in memory
---@field free integer free blocks, in pages that others still use or that were not collected
---@field other integer not of these allocators: stacks, data, other heaps

---@class idlesched.HeapReport bytes
---@field name string
---@field before integer what it had in memory before
---@field after integer and after
---@field live integer after: in use
---@field free integer after: the rest of it

---@class idlesched.WorkerStats
---@field max integer most that run jobs at a time, besides those in place of blocking ones
---@field threads integer workers that have a thread; the sum of the five states
---@field active integer workers that run or have been told to: running + tickets
---@field tickets integer wakes given and not yet used
---@field starting integer
---@field running integer
---@field parked integer
---@field releasing integer
---@field exiting integer
---@field blocking integer of those that run, those whose job blocks
---@field min integer threads that do not end after idle_exit

---@class idlesched.JobStats
---@field queued integer the delayed ones among them
---@field delayed integer
---@field running integer
---@field submitted integer so far: queued + running + done + failed + cancelled
---@field done integer
---@field failed integer
---@field cancelled integer

---@class idlesched.PoolStats
---@field workers idlesched.WorkerStats
---@field jobs idlesched.JobStats
---@field paused boolean
---@field wakes integer tickets given
---@field polls integer polls made with a ticket
---@field starts integer threads started
---@field starts_refused integer threads that the system refused
---@field releases integer heaps of parked workers that were given up
---@field exits integer threads that ended after idle_exit
---@field retires integer workers that retired, and whose thread has ended
---@field tickets_lost integer tickets that were lost with a refused thread
---@field passes integer passes of the pool's timer, each with one purge
---@field purges integer purges of the process, by whoever

---@class idlesched.Finding
---@field rule string the invariant in words, with its number: "I1 active = running + tickets"
---@field left integer what its left side is now
---@field right integer what its right side is now; the two should be equal

---@class idlesched.Error
---What happened: the job raised it; a value cannot travel; the worker had no memory; the pool's
---on_start raised it.
---@field kind "error"|"transfer"|"memory"|"start"
---With the position where Lua gave one; tostring(err) adds the traceback.
---@field message string
---@field value any the original error value, where it can travel and is no string
---@field traceback string the worker's stack when it was raised
---@field worker integer? number of the worker, from 1
---@field pool string? name of the pool

return idlesched
