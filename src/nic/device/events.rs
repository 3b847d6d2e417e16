//! Asynchronous events on their way from the engine to the open contexts.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use softrnic_engine::{ControlError, CqKey, Event, QpKey, SrqKey};
use softrnic_transport::QpEvent;

/// What an asynchronous event is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EventSource {
    /// A queue pair.
    Qp(QpKey),
    /// A completion queue.
    Cq(CqKey),
    /// A shared receive queue.
    Srq(SrqKey),
    /// The port.
    Port,
    /// The whole device.
    Device,
}

/// What has happened, with the numbers of verbs (`enum ibv_event_type`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(i32)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum EventKind {
    CqError = 0,
    QpFatal = 1,
    QpRequestError = 2,
    QpAccessError = 3,
    CommunicationEstablished = 4,
    SendQueueDrained = 5,
    DeviceFatal = 8,
    PortActive = 9,
    PortError = 10,
    SrqLimitReached = 15,
    LastWqeReached = 16,
    GidChange = 18,
    SpeedChange = 20,
}

/// An asynchronous event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AsyncEvent {
    /// What has happened.
    pub kind: EventKind,
    /// The object that it happened to.
    pub source: EventSource,
}

/// Receives events. Called with the NIC held: must not block.
pub trait EventSink: Send + Sync {
    /// Receives one event.
    fn event(&self, event: AsyncEvent);
}

/// Which sinks get the events of which object.
#[derive(Default)]
pub struct EventRoutes {
    by_source: FxHashMap<EventSource, Arc<dyn EventSink>>,
    /// The sinks for events of the port and the device.
    everyone: Vec<Arc<dyn EventSink>>,
}

impl EventRoutes {
    /// Ensures that the next [`add`](Self::add) needs no memory.
    ///
    /// # Errors
    /// There is no memory.
    pub fn make_room(&mut self) -> Result<(), ControlError> {
        self.by_source.try_reserve(1).map_err(|_| ControlError::NoMemory)
    }

    /// Sends events of `source` to `sink`.
    pub fn add(&mut self, source: EventSource, sink: Arc<dyn EventSink>) {
        self.by_source.insert(source, sink);
    }

    /// The object has been destroyed.
    pub fn remove(&mut self, source: EventSource) {
        self.by_source.remove(&source);
    }

    /// The device was opened.
    pub fn join(&mut self, sink: Arc<dyn EventSink>) {
        self.everyone.push(sink);
    }

    /// The device was closed.
    pub fn leave(&mut self, sink: &Arc<dyn EventSink>) {
        self.everyone.retain(|known| !Arc::ptr_eq(known, sink));
    }

    /// Who gets the events of the port and the device.
    pub(super) fn everyone(&self) -> Vec<Arc<dyn EventSink>> {
        self.everyone.clone()
    }

    pub(crate) fn publish(&self, events: impl Iterator<Item = Event>) {
        for event in events {
            let event = translate(event);
            match event.source {
                EventSource::Port | EventSource::Device => {
                    self.everyone.iter().for_each(|sink| sink.event(event));
                }
                source => {
                    if let Some(sink) = self.by_source.get(&source) {
                        sink.event(event);
                    }
                }
            }
        }
    }
}

fn translate(event: Event) -> AsyncEvent {
    let (source, kind) = match event {
        Event::Qp(key, event) => (
            EventSource::Qp(key),
            match event {
                QpEvent::CommunicationEstablished => EventKind::CommunicationEstablished,
                QpEvent::SendQueueDrained => EventKind::SendQueueDrained,
                QpEvent::LastWqeReached => EventKind::LastWqeReached,
                QpEvent::Fatal => EventKind::QpFatal,
                QpEvent::RequestError => EventKind::QpRequestError,
                QpEvent::AccessError => EventKind::QpAccessError,
            },
        ),
        Event::CqError(key) => (EventSource::Cq(key), EventKind::CqError),
        Event::SrqLimit(key) => (EventSource::Srq(key), EventKind::SrqLimitReached),
        Event::DeviceFatal => (EventSource::Device, EventKind::DeviceFatal),
        Event::PortActive => (EventSource::Port, EventKind::PortActive),
        Event::PortError => (EventSource::Port, EventKind::PortError),
        Event::GidChange => (EventSource::Port, EventKind::GidChange),
        Event::SpeedChange => (EventSource::Device, EventKind::SpeedChange),
    };
    AsyncEvent { kind, source }
}
