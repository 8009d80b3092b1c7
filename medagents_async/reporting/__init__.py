"""What people read: progress, tables, consultations."""
